import gc
import threading
import weakref

import pytest

from penstock.connectors.contracts.sink import SinkSnapshot
from penstock.connectors.staging.pre_commits import PreCommits


def test_a_pre_commit_returns_committables_and_state() -> None:
    pre_commits = PreCommits()
    first = pre_commits.add(lambda: [b"a"], lambda: [b"state"])
    assert first() == SinkSnapshot([b"a"], [b"state"])
    assert pre_commits.add(lambda: [b"b"], list)() == SinkSnapshot([b"b"], [])


def test_what_was_prepared_is_not_prepared_again_when_only_the_state_failed() -> None:
    calls: list[str] = []

    def prepare() -> list[bytes]:
        calls.append("prepared")
        return [b"a"]

    def fail() -> list[bytes]:
        raise TimeoutError

    pre_commits = PreCommits()
    with pytest.raises(TimeoutError):
        pre_commits.add(prepare, fail)()
    assert pre_commits.add(lambda: [b"b"], list)() == SinkSnapshot([b"a", b"b"], [])
    assert calls == ["prepared"]


def test_thousands_of_failures_in_a_row_are_made_up_for_in_order() -> None:
    pre_commits = PreCommits()
    for number in range(5_000):
        pre_commits.add(lambda number=number: [str(number).encode()], list)  # type: ignore[misc]
    committables = pre_commits.add(list, list)().committables
    assert committables == [str(number).encode() for number in range(5_000)]


def test_pre_commits_run_one_after_the_other() -> None:
    running, most = 0, 0
    entered = threading.Event()

    def prepare() -> list[bytes]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        entered.wait(0.05)
        running -= 1
        return []

    pre_commits = PreCommits()
    snapshots = [pre_commits.add(prepare, list) for _ in range(3)]
    threads = [threading.Thread(target=snapshot) for snapshot in snapshots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


class Big:
    pass


def test_finished_pre_commits_are_released() -> None:
    pre_commits = PreCommits()
    big = Big()
    watched = weakref.ref(big)
    pre_commits.add(lambda big=big: [b"a"], list)()  # type: ignore[misc]
    del big
    pre_commits.add(list, list)()
    gc.collect()
    assert watched() is None
