"""Checkpoints from trigger to end, with stages played by the tests."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from penstock.checkpoint.decider import RequestKind
from penstock.checkpoint.history import RecordStatus
from penstock.checkpoint.journal import (
    CheckpointCompleted,
    CheckpointDiscarded,
    CommitsDone,
    CommitsStarted,
)
from penstock.checkpoint.store import Completed
from penstock.errors import (
    CheckpointFailedError,
    CommitFailedError,
    FencedError,
    TooManyFailedCheckpointsError,
)
from penstock.ids import CheckpointId
from penstock.task.messages import Notice, NoticeKind
from tests.unit.checkpoint.coordinated import MIDDLE, SINK, SOURCE, World, another_driver
from tests.unit.support import eventually

HOUR = 3600.0


def asked(world: World, kind: RequestKind = RequestKind.MANUAL, path: Path | None = None) -> object:
    return world.coordinator.ask(kind, None if path is None else str(path))


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"state")
    return path


# -- what triggers ------------------------------------------------------------------------------


def test_checkpoints_come_by_themselves_every_interval(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=0.02) as world:
        first = world.complete()
        second = world.complete(first)
        assert (first, second) == (1, 2)
        records = world.history.checkpoints()
        assert records[1].triggered - records[0].triggered >= 0.02


def test_checkpoints_come_after_so_many_records(tmp_path: Path) -> None:
    with World(tmp_path, records=100) as world:
        world.coordinator.count(60)
        time.sleep(0.03)
        assert not world.coordinator.live
        world.coordinator.count(40)
        assert world.complete() == 1
        world.coordinator.count(99)
        time.sleep(0.03)
        assert not world.coordinator.live


def test_a_checkpoint_can_be_asked_for(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        answer = world.coordinator.ask(RequestKind.MANUAL)
        world.complete()
        completed = answer.result(20)
        assert (completed.checkpoint, completed.is_savepoint) == (1, False)
        assert completed.path == str(world.dir.chk(1))


def test_only_so_many_are_in_flight_at_once(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=0.005, max_concurrent=2) as world:
        world.triggered(after=1)
        time.sleep(0.03)
        assert list(world.coordinator.live) == [1, 2]


def test_a_source_is_told_of_one_barrier_after_the_other(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=0.005, max_concurrent=2) as world:
        world.triggered(after=1)
        assert world.coordinator.next_barrier(SOURCE) == 1
        world.hand_over(SOURCE, CheckpointId(1))
        assert world.coordinator.next_barrier(SOURCE) == 2
        world.hand_over(SOURCE, CheckpointId(2))
        assert world.coordinator.next_barrier(SOURCE) is None


def test_ids_go_on_behind_those_of_an_older_attempt(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        asked(world)
        world.triggered()
    with World(tmp_path, attempt="a2") as world:
        asked(world)
        assert world.triggered() > 1


# -- completion ---------------------------------------------------------------------------------


def test_a_checkpoint_is_complete_when_all_stages_have_answered(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        answer = world.coordinator.ask(RequestKind.MANUAL)
        n = world.triggered()
        world.hand_over(SOURCE, n)
        world.hand_over(SINK, n, prepared=[b"file"])
        time.sleep(0.03)
        assert not answer.done()
        assert not world.dir.metadata(n).exists()
        world.hand_over(MIDDLE, n)
        answer.result(20)
        assert world.dir.metadata(n).exists()
        names = [o.name for o in world.metadata(world.dir.chk(n)).operators]
        assert names == ["numbers", "count", "files"]
        eventually(lambda: len(world.committer.calls) == 1)


def test_completion_is_written_before_commits_begin(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        asked(world)
        world.complete(prepared=[b"file"])
        eventually(lambda: CommitsDone in map(type, world.entries()))
        kinds = [type(entry) for entry in world.entries()][2:]
        assert kinds == [CheckpointCompleted, CommitsStarted, CommitsDone]


def test_a_sink_that_owes_nothing_is_not_asked(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        asked(world)
        world.complete()
        time.sleep(0.02)
        assert CommitsStarted not in map(type, world.entries())
        assert world.committer.calls == []


def test_the_story_of_a_checkpoint_is_kept_in_order(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        asked(world)
        n = world.complete()
        record = world.record(n)
        assert record is not None
        assert record.status is RecordStatus.COMPLETED
        told = [(line.event.value, line.stage) for line in record.story]
        assert told[0] == ("triggered", None)
        assert sorted(told[1:4], key=str) == [
            ("acknowledged", "count"),
            ("acknowledged", "files"),
            ("acknowledged", "numbers"),
        ]
        assert told[4] == ("completed", None)


def test_a_checkpoint_under_way_can_be_looked_at_with_who_has_acknowledged(
    tmp_path: Path,
) -> None:
    with World(tmp_path) as world:
        asked(world)
        n = world.triggered()
        world.hand_over(SOURCE, n)
        eventually(lambda: world.record(n) is not None)
        record = world.record(n)
        assert record is not None
        assert record.status is RecordStatus.PENDING
        assert [operator.name for operator in record.operators] == ["numbers"]
        world.hand_over(SINK, n)
        world.hand_over(MIDDLE, n)
        world.over(n)
        record = world.record(n)
        assert record is not None
        assert record.status is RecordStatus.COMPLETED


def test_functions_that_listen_are_told_once(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        asked(world)
        n = world.complete()
        assert world.coordinator.has_notices(MIDDLE)
        assert world.coordinator.take_notices(MIDDLE) == [Notice(NoticeKind.COMPLETE, n)]
        assert world.coordinator.take_notices(MIDDLE) == []
        assert world.coordinator.take_notices(SINK) == []


def test_the_job_learns_of_what_is_complete_and_what_is_gone(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=0.001) as world:
        first = world.complete()
        second = world.complete(first)
    assert world.job.told == [first, second]
    assert world.job.gone == [first]


# -- aborts -------------------------------------------------------------------------------------


def test_a_checkpoint_that_takes_too_long_is_aborted_and_says_who_was_missing(
    tmp_path: Path,
) -> None:
    with World(tmp_path, timeout_s=0.3, tolerable_failures=1) as world:
        answer = world.coordinator.ask(RequestKind.MANUAL)
        n = world.triggered()
        world.hand_over(SOURCE, n)
        with pytest.raises(CheckpointFailedError) as failed:
            answer.result(20)
        assert str(failed.value) == (
            "checkpoint 1 did not complete: it took longer than 0.3 s; missing: count, files; "
            "ask again"
        )
        record = world.record(n)
        assert record is not None
        assert record.status is RecordStatus.FAILED
        assert record.failure is not None
        assert record.failure.startswith("expired: ")
        assert world.coordinator.take_notices(MIDDLE) == [Notice(NoticeKind.ABORTED, n)]
        assert world.job.failures == []
    assert not world.dir.chk(n).exists()


def test_more_failures_than_tolerable_fail_the_job(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=0.001, tolerable_failures=1) as world:
        full = OSError("disk full")
        first = world.triggered()
        world.hand_over(SOURCE, first, error=full)
        world.over(first)
        assert world.job.failures == []
        second = world.triggered(first)
        world.hand_over(SOURCE, second, error=full)
        world.over(second)
        eventually(lambda: len(world.job.failures) == 1)
        (failure,) = world.job.failures
        assert isinstance(failure, TooManyFailedCheckpointsError)
        assert (failure.tolerable, failure.checkpoint) == (1, second)
        assert failure.reason == "numbers: disk full"


def test_a_completed_checkpoint_forgives_the_failures_before_it(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=0.001, tolerable_failures=1) as world:
        n = CheckpointId(0)
        for _ in range(3):
            n = world.triggered(n)
            world.hand_over(SOURCE, n, error=OSError("disk full"))
            world.over(n)
            n = world.complete(n)
        assert world.job.failures == []


def test_a_failed_savepoint_is_told_to_who_asked_and_to_nobody_else(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        answer = world.coordinator.ask(RequestKind.SAVEPOINT, str(tmp_path / "sp"))
        world.hand_over(SOURCE, world.triggered(), error=OSError("disk full"))
        with pytest.raises(CheckpointFailedError, match="numbers: disk full"):
            answer.result(20)
        assert world.job.failures == []


def test_metadata_that_cannot_be_written_aborts_the_checkpoint(tmp_path: Path) -> None:
    with World(tmp_path, tolerable_failures=5) as world:
        asked(world)
        n = world.triggered()
        world.dir.chk(n).write_text("in the way")
        world.acknowledge(n)
        world.over(n)
        record = world.record(n)
        assert record is not None
        assert record.failure is not None
        assert record.failure.startswith("finalize-failed: its metadata: ")


def test_a_newer_checkpoint_ends_the_older_ones_harmlessly(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=0.001, max_concurrent=2, tolerable_failures=0) as world:
        first = world.triggered()
        second = world.triggered(first)
        world.hand_over(SOURCE, first)
        world.acknowledge(second)
        world.over(first)
        record = world.record(first)
        assert record is not None
        assert record.failure == f"subsumed: checkpoint {second} completed before it"
        assert world.job.failures == []
        assert first not in world.coordinator.live


def test_an_older_checkpoint_in_flight_completes_before_a_newer_one(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=0.001, max_concurrent=2, retained=2) as world:
        first = world.triggered()
        second = world.triggered(first)
        for stage in (SOURCE, MIDDLE, SINK):
            world.hand_over(stage, first)
            world.hand_over(stage, second)
        world.over(second)
        done = [e.checkpoint for e in world.entries() if isinstance(e, CheckpointCompleted)]
        assert done[:2] == [first, second]


# -- what sinks owe -----------------------------------------------------------------------------


def test_what_an_aborted_checkpoint_prepared_belongs_to_the_next_one(tmp_path: Path) -> None:
    with World(tmp_path, tolerable_failures=5) as world:
        asked(world)
        first = world.triggered()
        world.hand_over(SINK, first, prepared=[b"one"])
        world.hand_over(MIDDLE, first, error=OSError("disk full"))
        world.over(first)
        asked(world)
        second = world.complete(first, prepared=[b"two"])
        assert world.owed_in(world.dir.chk(second)) == [b"one", b"two"]
        eventually(lambda: world.committer.calls == [[b"one", b"two"]])


def test_an_answer_that_comes_too_late_gives_its_files_back_but_not_what_it_owes(
    tmp_path: Path,
) -> None:
    with World(tmp_path, tolerable_failures=5) as world:
        asked(world)
        first, persisting = world.triggered(), threading.Event()
        late = write(tmp_path / "late")
        world.hand_over(SINK, first, files=[late], prepared=[b"one"], persisting=persisting)
        world.hand_over(MIDDLE, first, error=OSError("disk full"))
        world.over(first)
        assert late.exists()
        persisting.set()
        eventually(lambda: not late.exists())
        asked(world)
        second = world.complete(first)
        assert world.owed_in(world.dir.chk(second)) == [b"one"]


def test_what_is_committed_is_owed_no_more(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        asked(world)
        first = world.complete(prepared=[b"one"])
        eventually(lambda: CommitsDone in map(type, world.entries()))
        time.sleep(0.02)
        asked(world)
        second = world.complete(first, prepared=[b"two"])
        assert world.owed_in(world.dir.chk(second)) == [b"two"]


def test_a_checkpoint_holds_what_is_just_being_committed(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.committer.may_go.clear()
        asked(world)
        first = world.complete(prepared=[b"one"])
        asked(world)
        second = world.complete(first, prepared=[b"two"])
        assert world.owed_in(world.dir.chk(second)) == [b"one", b"two"]
        world.committer.may_go.set()
        eventually(lambda: world.committer.calls == [[b"one"], [b"one", b"two"]])


def test_a_commit_that_fails_fails_the_job(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.committer.error = OSError("gone")
        asked(world)
        world.complete(prepared=[b"one"])
        eventually(lambda: len(world.job.failures) == 1)
        assert isinstance(world.job.failures[0], CommitFailedError)
        assert CommitsDone not in map(type, world.entries())


def test_what_is_acknowledged_while_the_coordinator_stops_is_still_owed(tmp_path: Path) -> None:
    with World(tmp_path, enabled=False) as world:
        asked(world, RequestKind.SAVEPOINT, tmp_path / "sp")
        persisting = threading.Event()
        world.hand_over(SINK, world.triggered(), prepared=[b"one"], persisting=persisting)
        stopping = threading.Thread(target=world.coordinator.stop)
        stopping.start()
        time.sleep(0.05)
        persisting.set()
        stopping.join(5)
        assert [c.data for c in world.coordinator.owed()["files"]] == [b"one"]


# -- savepoints ---------------------------------------------------------------------------------


def test_a_savepoint_commits_nothing_subsumes_nothing_and_deletes_nothing(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        asked(world)
        first = world.complete()
        asked(world)
        pending = world.triggered(first)
        answer = world.coordinator.ask(RequestKind.SAVEPOINT, str(tmp_path / "sp"))
        savepoint = world.triggered(pending)
        world.acknowledge(savepoint, prepared=[b"one"])
        assert answer.result(20).path == str(tmp_path / "sp")
        assert pending in world.coordinator.live
        assert world.dir.metadata(first).exists()
        assert world.committer.calls == []
        assert world.owed_in(tmp_path / "sp") == [b"one"]
        assert world.metadata(tmp_path / "sp").kind == "savepoint"
        assert not world.dir.chk(savepoint).exists()


def test_what_a_savepoint_prepared_is_committed_with_the_next_checkpoint(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        asked(world, RequestKind.SAVEPOINT, tmp_path / "sp")
        savepoint = world.complete(prepared=[b"one"])
        asked(world)
        world.complete(savepoint, prepared=[b"two"])
        eventually(lambda: world.committer.calls == [[b"one", b"two"]])


def test_a_savepoint_tells_stages_where_it_goes_and_that_all_must_be_rolled(
    tmp_path: Path,
) -> None:
    with World(tmp_path) as world:
        asked(world, RequestKind.SAVEPOINT, tmp_path / "sp")
        n = world.triggered()
        assert world.coordinator.savepoint_path(n) == tmp_path / "sp"
        assert world.coordinator.rolls_all(n)
        world.complete()
        asked(world)
        n = world.triggered(n)
        assert world.coordinator.savepoint_path(n) is None
        assert not world.coordinator.rolls_all(n)


def test_an_older_checkpoint_does_not_end_a_savepoint(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        answer = world.coordinator.ask(RequestKind.SAVEPOINT, str(tmp_path / "sp"))
        savepoint = world.triggered()
        asked(world)
        newer = world.triggered(savepoint)
        world.acknowledge(newer)
        world.over(newer)
        world.acknowledge(savepoint)
        assert answer.result(20).checkpoint == savepoint


# -- the end of a job ---------------------------------------------------------------------------


def test_the_last_checkpoint_comes_when_all_stages_have_ended(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=HOUR) as world:
        world.coordinator.ended(SOURCE)
        world.coordinator.ended(MIDDLE)
        time.sleep(0.02)
        assert not world.coordinator.live
        world.coordinator.ended(SINK)
        n = world.triggered()
        assert world.coordinator.rolls_all(n)
        world.complete(prepared=[b"last"])
        eventually(lambda: len(world.job.ends) == 1)
        assert isinstance(world.job.ends[0], Completed)
        assert world.committer.calls == [[b"last"]]


def test_the_job_ends_only_behind_its_last_commits(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=HOUR) as world:
        world.committer.may_go.clear()
        world.all_end()
        world.complete(prepared=[b"last"])
        time.sleep(0.03)
        assert world.job.ends == []
        world.committer.may_go.set()
        eventually(lambda: len(world.job.ends) == 1)


def test_a_last_checkpoint_that_fails_is_tried_again(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=HOUR, tolerable_failures=3) as world:
        world.all_end()
        first = world.triggered()
        world.hand_over(SOURCE, first, error=OSError("disk full"))
        world.over(first)
        world.complete(first)
        eventually(lambda: len(world.job.ends) == 1)


def test_without_checkpoints_the_end_of_data_is_the_end(tmp_path: Path) -> None:
    with World(tmp_path, enabled=False) as world:
        world.all_end()
        eventually(lambda: world.job.ends == [None])


def test_a_stop_holds_sources_still_commits_and_ends_the_job(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=0.001) as world:
        answer = world.coordinator.ask(RequestKind.STOP, str(tmp_path / "sp"))
        eventually(lambda: world.coordinator.quiet)
        stop = max(world.coordinator.live)
        for n in world.coordinator.live:
            world.acknowledge(n, prepared=[b"%d" % n])
        assert answer.result(20).path == str(tmp_path / "sp")
        eventually(lambda: len(world.job.ends) == 1)
        assert b"%d" % stop in world.committer.calls[-1]
        ended = world.job.ends[0]
        assert ended is not None
        assert ended.is_savepoint
        time.sleep(0.02)
        assert not world.coordinator.live


def test_a_stop_that_fails_lets_the_job_go_on(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        answer = world.coordinator.ask(RequestKind.STOP, str(tmp_path / "sp"))
        n = world.triggered()
        assert world.coordinator.quiet
        world.hand_over(SOURCE, n, error=OSError("disk full"))
        with pytest.raises(CheckpointFailedError):
            answer.result(20)
        assert not world.coordinator.quiet
        asked(world)
        assert world.complete(n)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_job_whose_data_ended_while_a_stop_failed_comes_to_its_end(
    tmp_path: Path, enabled: bool
) -> None:
    with World(tmp_path, enabled=enabled, tolerable_failures=5) as world:
        answer = world.coordinator.ask(RequestKind.STOP, str(tmp_path / "sp"))
        n = world.triggered()
        world.all_end()
        time.sleep(0.02)
        world.hand_over(SOURCE, n, error=OSError("disk full"))
        with pytest.raises(CheckpointFailedError):
            answer.result(20)
        if enabled:
            world.complete(n)
        eventually(lambda: len(world.job.ends) == 1)


def test_draining_waits_for_the_end_of_all_stages_then_writes_the_savepoint(
    tmp_path: Path,
) -> None:
    with World(tmp_path, interval_s=HOUR) as world:
        answer = world.coordinator.drain(str(tmp_path / "sp"))
        assert world.coordinator.draining
        time.sleep(0.02)
        assert not world.coordinator.live
        world.all_end()
        world.complete(prepared=[b"last"])
        assert answer.result(20).path == str(tmp_path / "sp")
        eventually(lambda: len(world.job.ends) == 1)
        assert world.committer.calls == [[b"last"]]


def test_whoever_asked_is_told_when_the_attempt_ends_before(tmp_path: Path) -> None:
    world = World(tmp_path)
    with world:
        in_flight = world.coordinator.ask(RequestKind.MANUAL)
        world.triggered()
        waiting = world.coordinator.ask(RequestKind.MANUAL)
    afterwards = world.coordinator.ask(RequestKind.MANUAL)
    for answer in (in_flight, waiting, afterwards):
        with pytest.raises(CheckpointFailedError, match="ask again if it runs"):
            answer.result(1)


def test_whoever_asked_is_told_when_the_coordinator_has_failed(tmp_path: Path) -> None:
    world = World(tmp_path)
    with world:
        another_driver(world)
        asked(world)
        eventually(lambda: world.job.failures != [])
        answer = world.coordinator.ask(RequestKind.MANUAL)
    with pytest.raises(CheckpointFailedError):
        answer.result(1)


# -- retention ----------------------------------------------------------------------------------


def test_so_many_checkpoints_are_kept_with_all_the_files_they_name(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    with World(tmp_path, retained=2) as world:
        n = CheckpointId(0)
        for i in range(1, 5):
            asked(world)
            n = world.triggered(n)
            mine = [write(shared / "base"), write(shared / f"{i - 1}"), write(shared / f"{i}")]
            world.hand_over(MIDDLE, n, files=mine)
            world.hand_over(SOURCE, n)
            world.hand_over(SINK, n)
            world.over(n)
        eventually(lambda: not (shared / "1").exists())
        assert sorted(p.name for p in shared.iterdir()) == ["2", "3", "4", "base"]
        assert world.dir.checkpoints_on_disk() == [3, 4]
        assert world.store.retained == [3, 4]


def test_a_checkpoint_is_gone_from_the_journal_before_it_is_gone_from_disk(
    tmp_path: Path,
) -> None:
    with World(tmp_path) as world:
        asked(world)
        first = world.complete()
        asked(world)
        world.complete(first)
        eventually(lambda: not world.dir.chk(first).exists())
        gone = [e.checkpoint for e in world.entries() if isinstance(e, CheckpointDiscarded)]
        assert gone == [first]


def test_files_of_a_failed_checkpoint_go_if_nobody_else_needs_them(tmp_path: Path) -> None:
    both, alone = write(tmp_path / "both"), write(tmp_path / "alone")
    with World(tmp_path, tolerable_failures=5) as world:
        world.files.hold("live", [both])
        asked(world)
        n = world.triggered()
        world.hand_over(MIDDLE, n, files=[both, alone])
        world.hand_over(SOURCE, n, error=OSError("disk full"))
        world.over(n)
        eventually(lambda: not alone.exists())
        assert both.exists()


# -- fencing ------------------------------------------------------------------------------------


def test_a_driver_that_was_taken_over_completes_commits_and_deletes_nothing(
    tmp_path: Path,
) -> None:
    kept = write(tmp_path / "kept")
    with World(tmp_path) as world:
        asked(world)
        first = world.triggered()
        world.hand_over(MIDDLE, first, files=[kept])
        world.hand_over(SOURCE, first)
        world.hand_over(SINK, first)
        world.over(first)
        asked(world)
        second = world.triggered(first)
        another_driver(world)
        world.acknowledge(second, prepared=[b"one"])
        eventually(lambda: len(world.job.failures) == 1)
        assert isinstance(world.job.failures[0], FencedError)
    assert world.committer.calls == []
    assert world.dir.metadata(first).exists()
    assert kept.exists()
    done = [e.checkpoint for e in world.entries() if isinstance(e, CheckpointCompleted)]
    assert done == [first]


def test_a_driver_that_is_taken_over_before_its_commits_begin_does_not_begin(
    tmp_path: Path,
) -> None:
    with World(tmp_path) as world:
        world.committer.may_go.clear()
        asked(world)
        first = world.complete(prepared=[b"one"])
        asked(world)
        world.complete(first, prepared=[b"two"])
        eventually(lambda: CommitsStarted in map(type, world.entries()))
        another_driver(world)
        world.committer.may_go.set()
        eventually(lambda: len(world.job.failures) == 2)
        assert all(isinstance(failure, FencedError) for failure in world.job.failures)
        assert world.committer.calls == [[b"one"]]
