"""The commit executor: commits in order, notifications, and discarded output."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.checkpoint.coordinator.commit_executor import CommitExecutor, DiscardedOutput
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import AttemptStarted, CommitsDone, CommitsStarted
from penstock.checkpoint.storage.metadata import CommittableState
from penstock.connectors.contracts.committer import CommitRequest
from penstock.connectors.contracts.committing import seconds_before_retry
from penstock.errors import FencedError
from penstock.ids import CheckpointId
from tests.unit.checkpoint.coordinator.coordinated_job import SINK_UID, Commits, World
from tests.unit.support import eventually

X, Y = CommittableState(1, b"x"), CommittableState(2, b"y")
ONE = {SINK_UID: [X]}
DISCARDED = {SINK_UID: DiscardedOutput([b"a"], [b"b"])}


class RetriesLater(Commits):
    """Asks three times to be called again."""

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        for request in requests:
            if request.get_number_of_retries() < 3:
                request.retry_later()


class Discards(Commits):
    """Also remembers what was discarded, among its calls."""

    def discard(self, discarded: Sequence[bytes], retained: Sequence[bytes]) -> None:
        self.calls.append([*discarded, *retained])
        if self.error is not None:
            raise self.error


def executor(root: Path, committer: Commits, retries: int = 0) -> CommitExecutor:
    return CommitExecutor({SINK_UID: committer}, {SINK_UID: "files"}, World(root).store, retries)


def nothing() -> None:
    pass


def test_sinks_discard_output_after_the_commits_submitted_before(tmp_path: Path) -> None:
    committer = Discards()
    committer.may_go.clear()
    commits = executor(tmp_path, committer)
    done = threading.Event()
    commits.submit(CheckpointId(1), ONE, nothing, lambda _: None)
    commits.discard(DISCARDED)
    commits.submit(CheckpointId(2), {SINK_UID: [Y]}, done.set, lambda _: None)
    assert committer.calls == []
    committer.may_go.set()
    assert done.wait(20)
    commits.close()
    assert committer.calls == [[b"x"], [b"a", b"b"], [b"y"]]


def test_what_the_checkpoint_before_was_committing_is_not_committed_again(tmp_path: Path) -> None:
    world, committer = World(tmp_path), Commits()
    committer.may_go.clear()
    commits = CommitExecutor({SINK_UID: committer}, {SINK_UID: "files"}, world.store, 0)
    done = threading.Event()
    commits.submit(CheckpointId(1), ONE, nothing, lambda _: None)
    commits.submit(CheckpointId(2), {SINK_UID: [X, Y]}, nothing, lambda _: None)
    commits.submit(CheckpointId(3), {SINK_UID: [X, Y]}, done.set, lambda _: None)
    committer.may_go.set()
    assert done.wait(20)
    commits.close()
    assert committer.calls == [[b"x"], [b"y"]]
    # Checkpoint 3 holds both, and nothing of it was left to commit.
    written = [e for e in world.entries() if isinstance(e, (CommitsStarted, CommitsDone))]
    assert [(type(e), e.checkpoint) for e in written] == [
        *((CommitsStarted, 1), (CommitsDone, 1)),
        *((CommitsStarted, 2), (CommitsDone, 2)),
        (CommitsDone, 3),
    ]


def test_after_a_failed_commit_the_next_one_has_all_of_it(tmp_path: Path) -> None:
    committer = Commits()
    committer.error = OSError("no")
    commits = executor(tmp_path, committer)
    failed, done = threading.Event(), threading.Event()

    def fail(_: BaseException) -> None:
        committer.error = None
        failed.set()

    commits.submit(CheckpointId(1), ONE, nothing, fail)
    assert failed.wait(20)
    commits.submit(CheckpointId(2), {SINK_UID: [X, Y]}, done.set, lambda _: None)
    assert done.wait(20)
    commits.close()
    assert committer.calls == [[b"x", b"y"]]


def test_ids_of_a_restored_snapshot_are_not_those_of_new_checkpoints(tmp_path: Path) -> None:
    committer = Commits()
    commits = executor(tmp_path, committer)
    # Another job's: it may have had more checkpoints than this one.
    commits.commit(CheckpointId(9), {SINK_UID: [CommittableState(9, b"restored")]})
    done = threading.Event()
    commits.submit(CheckpointId(1), ONE, done.set, lambda _: None)
    assert done.wait(20)
    commits.close()
    assert committer.calls == [[b"restored"], [b"x"]]


def test_what_waits_for_commits_that_are_done_is_discarded_when_the_executor_closes(
    tmp_path: Path,
) -> None:
    committer = Discards()
    commits = executor(tmp_path, committer)
    notified, may_go = threading.Event(), threading.Event()

    def done() -> None:
        notified.set()
        assert may_go.wait(20)

    commits.submit(CheckpointId(1), ONE, done, lambda _: None)
    commits.discard(DISCARDED)
    assert notified.wait(20)
    closing = threading.Thread(target=commits.close)
    closing.start()
    eventually(commits._closing.is_set)
    may_go.set()
    closing.join()
    assert committer.calls == [[b"x"], [b"a", b"b"]]


def test_what_waits_for_a_commit_that_is_dropped_is_not_discarded(tmp_path: Path) -> None:
    committer = Discards()
    committer.may_go.clear()
    commits = executor(tmp_path, committer)
    commits.submit(CheckpointId(1), ONE, nothing, lambda _: None)
    commits.submit(CheckpointId(2), ONE, nothing, lambda _: None)
    commits.discard(DISCARDED)
    closing = threading.Thread(target=commits.close)
    closing.start()
    eventually(commits._closing.is_set)
    committer.may_go.set()
    closing.join()
    assert committer.calls == [[b"x"]]


def test_after_a_failed_commit_nothing_is_discarded(tmp_path: Path) -> None:
    committer = Discards()
    committer.error = OSError("no")
    commits = executor(tmp_path, committer)
    failures: list[BaseException] = []
    ended = threading.Event()
    commits.submit(CheckpointId(1), ONE, nothing, failures.append)
    commits.discard(DISCARDED)
    commits.submit(CheckpointId(2), {}, ended.set, failures.append)
    assert ended.wait(20)
    commits.close()
    assert len(failures) == 1
    assert committer.calls == []


def test_a_sink_that_cannot_discard_fails_nothing(tmp_path: Path) -> None:
    committer = Discards()
    commits = executor(tmp_path, committer)
    committer.error = OSError("no")
    done = threading.Event()
    commits.discard({**DISCARDED, "a sink without a committer": DiscardedOutput([b"a"], [])})
    commits.submit(CheckpointId(1), {}, done.set, lambda _: None)
    assert done.wait(20)
    commits.close()
    assert committer.calls == [[b"a", b"b"]]


def test_a_commit_is_retried_with_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = executor(tmp_path, RetriesLater(), 3)
    pauses: list[float] = []
    monkeypatch.setattr(commits._closing, "wait", pauses.append)
    commits.commit(CheckpointId(1), ONE)
    assert pauses == [seconds_before_retry(retry) for retry in (1, 2, 3)]


class Notified(Commits):
    """Also remembers among its calls when it was notified."""

    def notify_checkpoint_complete(self) -> None:
        self.calls.append([])
        if self.error is not None:
            raise self.error


def test_sinks_are_notified_of_a_checkpoint_after_its_commits_and_of_one_without_commits(
    tmp_path: Path,
) -> None:
    committer = Notified()
    commits = executor(tmp_path, committer)
    commits.submit(CheckpointId(1), ONE, nothing, lambda _: None)
    commits.submit(CheckpointId(2), {}, nothing, lambda _: None)
    eventually(lambda: len(committer.calls) == 3)
    commits.close()
    assert committer.calls == [[b"x"], [], []]


def test_a_sink_that_fails_in_a_notification_fails_nothing_else(tmp_path: Path) -> None:
    committer = Notified()
    committer.error = OSError("no")
    commits = executor(tmp_path, committer)
    failures: list[BaseException] = []
    for checkpoint in (1, 2):
        commits.submit(CheckpointId(checkpoint), {}, nothing, failures.append)
    eventually(lambda: len(committer.calls) == 2)
    commits.close()
    assert failures == []


def test_after_a_failed_commit_sinks_are_not_notified(tmp_path: Path) -> None:
    committer = Notified()
    committer.error = OSError("no")
    commits = executor(tmp_path, committer)
    ended = threading.Event()
    commits.submit(CheckpointId(1), ONE, nothing, lambda _: None)
    commits.submit(CheckpointId(2), {}, ended.set, lambda _: None)
    assert ended.wait(20)
    commits.close()
    assert committer.calls == []


def test_a_driver_that_was_replaced_during_a_retry_commits_nothing_more(tmp_path: Path) -> None:
    world, calls = World(tmp_path), []

    class Replaced(Commits):
        def commit(self, requests: Sequence[CommitRequest]) -> None:
            calls.append(len(requests))
            if len(calls) == 1:
                successor = Journal(world.dir.storage, world.dir.key)
                successor.state()
                successor.append(AttemptStarted(attempt="a9", time=0.0, host="h", pid=1))
            for request in requests:
                request.retry_later()

    commits = CommitExecutor({SINK_UID: Replaced()}, {SINK_UID: "files"}, world.store, 5)
    with pytest.raises(FencedError, match="a9"):
        commits.commit(CheckpointId(1), ONE)
    assert calls == [1]


def test_a_driver_that_was_replaced_discards_no_output(tmp_path: Path) -> None:
    world, committer = World(tmp_path), Discards()
    successor = Journal(world.dir.storage, world.dir.key)
    successor.state()
    successor.append(AttemptStarted(attempt="a9", time=0.0, host="h", pid=1))
    commits = CommitExecutor({SINK_UID: committer}, {SINK_UID: "files"}, world.store, 0)
    commits.discard(DISCARDED)
    commits.close()
    assert committer.calls == []
