from collections.abc import Callable, Sequence

import pytest

from penstock.connectors.contracts.committer import CommitRequest, Committer
from penstock.connectors.contracts.committing import CommitReport, commit_all, seconds_before_retry
from penstock.errors import CommitFailedError


class Scripted(Committer):
    """Signals what is scripted for a committable, and commits all others."""

    def __init__(self, script: dict[bytes, Callable[[CommitRequest], None]]) -> None:
        self._script = script
        self.calls: list[list[bytes]] = []

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        self.calls.append([request.get_committable() for request in requests])
        for request in requests:
            act = self._script.get(request.get_committable())
            if act is not None:
                act(request)


def run(committer: Committer, *committables: bytes, retries: int = 3) -> CommitReport:
    return commit_all(
        committer, committables, retries=retries, pause=lambda retry: None, step="files"
    )


def test_a_request_without_a_signal_is_committed() -> None:
    committer = Scripted({b"old": CommitRequest.signal_already_committed})
    assert run(committer, b"a", b"old", b"b") == CommitReport(2, 1, 0)
    assert committer.calls == [[b"a", b"old", b"b"]]


def test_without_committables_the_committer_is_not_called() -> None:
    committer = Scripted({})
    assert run(committer) == CommitReport()
    assert committer.calls == []


def test_only_requests_that_want_a_retry_are_retried() -> None:
    def in_the_end(request: CommitRequest) -> None:
        if request.get_number_of_retries() < 2:
            request.retry_later()

    committer = Scripted({b"late": in_the_end})
    pauses: list[int] = []
    report = commit_all(committer, [b"a", b"late"], retries=2, pause=pauses.append, step="files")
    assert report == CommitReport(2, 0, 2)
    assert pauses == [1, 2]
    assert committer.calls == [[b"a", b"late"], [b"late"], [b"late"]]


def test_an_update_takes_the_place_of_the_committable() -> None:
    committer = Scripted({b"a": lambda request: request.update_and_retry_later(b"a2")})
    assert run(committer, b"a") == CommitReport(1, 0, 1)
    assert committer.calls == [[b"a"], [b"a2"]]


def test_a_committer_that_always_requests_a_retry_fails() -> None:
    committer = Scripted({b"a": CommitRequest.retry_later})
    with pytest.raises(CommitFailedError, match="after 3 retries") as caught:
        run(committer, b"a", b"b")
    assert (caught.value.kind, caught.value.count) == ("failed", 1)
    assert len(committer.calls) == 4


def test_the_last_reason_is_reported_when_retries_run_out() -> None:
    errors = [ConnectionError(f"refused {number}") for number in range(3)]

    def waits(request: CommitRequest) -> None:
        request.retry_later(errors[request.get_number_of_retries()])

    committer = Scripted({b"later": CommitRequest.retry_later, b"a": waits})
    reason = "after 2 retries: ConnectionError: refused 2;"
    with pytest.raises(CommitFailedError, match=reason) as caught:
        run(committer, b"later", b"a", retries=2)
    assert (caught.value.kind, caught.value.count) == ("failed", 2)
    assert caught.value.__cause__ is errors[-1]


def test_a_known_failure_is_not_dropped() -> None:
    error = ValueError("no such table")
    committer = Scripted({b"a": lambda r: r.signal_failed_with_known_reason(error)})
    with pytest.raises(CommitFailedError, match="ValueError: no such table") as caught:
        run(committer, b"a", b"b")
    raised = caught.value
    assert (raised.step, raised.kind, raised.count) == ("files", "impossible", 1)
    assert raised.is_permanent
    assert caught.value.__cause__ is error


def test_a_failure_is_raised_at_once_even_if_others_request_a_retry() -> None:
    committer = Scripted(
        {
            b"a": CommitRequest.retry_later,
            b"b": lambda r: r.signal_failed_with_unknown_reason(OSError("timeout")),
        }
    )
    with pytest.raises(CommitFailedError, match="not known whether 1 commit") as caught:
        run(committer, b"a", b"b")
    assert (caught.value.kind, caught.value.count) == ("unknown", 1)
    assert len(committer.calls) == 1


class Raising(Committer):
    def __init__(self, *signalled: int) -> None:
        self._signalled = signalled

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        for position in self._signalled:
            requests[position].signal_already_committed()
        raise ConnectionError


def test_an_exception_leaves_open_what_had_no_signal() -> None:
    with pytest.raises(CommitFailedError, match="ConnectionError") as caught:
        run(Raising(0), b"a", b"b", b"c")
    assert (caught.value.kind, caught.value.count) == ("unknown", 2)


def test_an_exception_is_raised_even_if_all_requests_had_a_signal() -> None:
    with pytest.raises(CommitFailedError) as caught:
        run(Raising(0, 1), b"a", b"b")
    assert caught.value.kind == "unknown"


def test_a_failed_retry_reports_the_new_reason() -> None:
    def worse(request: CommitRequest) -> None:
        if request.get_number_of_retries():
            request.signal_failed_with_known_reason(ValueError("gone"))
        else:
            request.retry_later()

    with pytest.raises(CommitFailedError, match="gone"):
        run(Scripted({b"a": worse}), b"a")


def test_pauses_grow_up_to_a_limit() -> None:
    pauses = [seconds_before_retry(retry) for retry in range(1, 100)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[1], pauses[-1]) == (0.1, 0.2, 10.0)
