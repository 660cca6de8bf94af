"""The lane of commits, and what is discarded in it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.checkpoint.commits import CommitLane, Unneeded
from penstock.checkpoint.metadata import CommittableState
from penstock.connectors.committer import CommitRequest
from penstock.connectors.committing import seconds_before_retry
from penstock.ids import CheckpointId
from tests.unit.checkpoint.coordinated import SINK_UID, Commits, World
from tests.unit.support import eventually

ONE = {SINK_UID: [CommittableState(1, b"x")]}
UNNEEDED = {SINK_UID: Unneeded([b"a"], [b"b"])}


class Patient(Commits):
    """Asks three times to be called again."""

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        for request in requests:
            if request.get_number_of_retries() < 3:
                request.retry_later()


class Discards(Commits):
    """Also remembers what was discarded, among its calls."""

    def discard(self, gone: Sequence[bytes], kept: Sequence[bytes]) -> None:
        self.calls.append([*gone, *kept])
        if self.error is not None:
            raise self.error


def lane(root: Path, committer: Commits, retries: int = 0) -> CommitLane:
    return CommitLane({SINK_UID: committer}, {SINK_UID: "files"}, World(root).store, retries)


def nothing() -> None:
    pass


def test_sinks_discard_behind_the_commits_before(tmp_path: Path) -> None:
    committer = Discards()
    committer.may_go.clear()
    commits = lane(tmp_path, committer)
    done = threading.Event()
    commits.submit(CheckpointId(1), ONE, nothing, lambda _: None)
    commits.discard(UNNEEDED)
    commits.submit(CheckpointId(2), ONE, done.set, lambda _: None)
    assert committer.calls == []
    committer.may_go.set()
    assert done.wait(20)
    commits.close()
    assert committer.calls == [[b"x"], [b"a", b"b"], [b"x"]]


def test_behind_a_failed_commit_nothing_is_discarded(tmp_path: Path) -> None:
    committer = Discards()
    committer.error = OSError("no")
    commits = lane(tmp_path, committer)
    failures: list[BaseException] = []
    ended = threading.Event()
    commits.submit(CheckpointId(1), ONE, nothing, failures.append)
    commits.discard(UNNEEDED)
    commits.submit(CheckpointId(2), {}, ended.set, failures.append)
    assert ended.wait(20)
    commits.close()
    assert len(failures) == 1
    assert committer.calls == []


def test_a_sink_that_cannot_discard_fails_nothing(tmp_path: Path) -> None:
    committer = Discards()
    commits = lane(tmp_path, committer)
    committer.error = OSError("no")
    done = threading.Event()
    commits.discard({**UNNEEDED, "a sink without a committer": Unneeded([b"a"], [])})
    commits.submit(CheckpointId(1), {}, done.set, lambda _: None)
    assert done.wait(20)
    commits.close()
    assert committer.calls == [[b"a", b"b"]]


def test_a_commit_is_asked_for_again_after_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = lane(tmp_path, Patient(), 3)
    pauses: list[float] = []
    monkeypatch.setattr(commits._closing, "wait", pauses.append)
    commits.commit(CheckpointId(1), ONE)
    assert pauses == [seconds_before_retry(retry) for retry in (1, 2, 3)]


class Settles(Commits):
    """Also remembers among its calls when nothing was owed any more."""

    def settled(self) -> None:
        self.calls.append([])
        if self.error is not None:
            raise self.error


def test_sinks_learn_of_a_checkpoint_behind_its_commits_and_of_one_without(tmp_path: Path) -> None:
    committer = Settles()
    commits = lane(tmp_path, committer)
    commits.submit(CheckpointId(1), ONE, nothing, lambda _: None)
    commits.submit(CheckpointId(2), {}, nothing, lambda _: None)
    eventually(lambda: len(committer.calls) == 3)
    commits.close()
    assert committer.calls == [[b"x"], [], []]


def test_a_sink_that_fails_behind_its_commits_fails_nothing(tmp_path: Path) -> None:
    committer = Settles()
    committer.error = OSError("no")
    commits = lane(tmp_path, committer)
    failures: list[BaseException] = []
    for checkpoint in (1, 2):
        commits.submit(CheckpointId(checkpoint), {}, nothing, failures.append)
    eventually(lambda: len(committer.calls) == 2)
    commits.close()
    assert failures == []


def test_behind_a_failed_commit_nothing_is_settled(tmp_path: Path) -> None:
    committer = Settles()
    committer.error = OSError("no")
    commits = lane(tmp_path, committer)
    ended = threading.Event()
    commits.submit(CheckpointId(1), ONE, nothing, lambda _: None)
    commits.submit(CheckpointId(2), {}, ended.set, lambda _: None)
    assert ended.wait(20)
    commits.close()
    assert committer.calls == []
