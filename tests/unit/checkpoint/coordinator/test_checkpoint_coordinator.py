"""Checkpoints from trigger to end, with stages played by the tests."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.checkpoint.coordinator.request_decider import RequestKind
from penstock.checkpoint.history import CheckpointStatus
from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.checkpoint.storage.journal_entries import (
    CheckpointCompletedEntry,
    CheckpointDiscarded,
    CommitsDone,
    CommitsStarted,
)
from penstock.errors import (
    CheckpointFailedError,
    CommitFailedError,
    FencedError,
    TooManyFailedCheckpointsError,
)
from penstock.ids import CheckpointId
from penstock.savepoint.directory import dispose
from penstock.task.messages import CheckpointNotification, NotificationKind
from penstock.testing import ManualClock
from tests.local_paths import local
from tests.unit.checkpoint.coordinator.coordinated_job import (
    MIDDLE,
    SINK,
    SOURCE,
    World,
    another_driver,
)
from tests.unit.support import eventually

HOUR = 3600.0


def requested(
    world: World, kind: RequestKind = RequestKind.MANUAL, path: Path | None = None
) -> object:
    return world.coordinator.request(kind, None if path is None else str(path))


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"state")
    return path


# -- what triggers ------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
def test_a_clock_that_is_set_neither_delays_nor_expires_a_checkpoint(
    tmp_path: Path, jump: float
) -> None:
    time_of_day = ManualClock(1_000_000.0)
    with World(tmp_path, "a1", time_of_day, interval_s=10.0, timeout_s=60.0) as world:
        world.clock.advance(10.0)
        (first,) = world.live
        time_of_day.set_back(-jump)
        world.clock.advance(5.0)
        assert world.live == [first]
        world.acknowledge(first)
        world.over(first)
        world.clock.advance(5.0)
        assert world.triggered(first) > first
        eventually(lambda: world.is_recorded(first))
        record = world.record(first)
        assert record is not None
        assert (record.triggered, record.duration_s >= 0) == (1_000_000.0, True)


def test_checkpoints_come_by_themselves_every_interval(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=10.0) as world:
        world.clock.advance(9.9)
        assert world.live == []
        world.clock.advance(0.1)
        assert world.complete() == 1
        world.clock.advance(9.9)
        assert world.live == []
        world.clock.advance(0.1)
        assert world.complete(1) == 2
        records = world.history.checkpoints()
        assert [record.triggered for record in records] == [1_010.0, 1_020.0]


def test_checkpoints_come_after_so_many_records(tmp_path: Path) -> None:
    with World(tmp_path, records=100) as world:
        world.coordinator.records_read(60)
        assert world.live == []
        world.coordinator.records_read(40)
        assert world.complete() == 1
        world.coordinator.records_read(99)
        assert world.live == []


class InterruptedCount(int):
    """A number of records during whose addition another thread may count, too."""

    def __init__(self, _: int) -> None:
        self.adding, self.may_go_on = threading.Event(), threading.Event()

    def __radd__(self, other: int) -> int:
        self.adding.set()
        self.may_go_on.wait(20)
        return other + int(self)


def test_records_that_two_sources_read_at_the_same_time_are_all_counted(tmp_path: Path) -> None:
    with World(tmp_path, records=100) as world:
        first = InterruptedCount(60)
        source = threading.Thread(target=world.coordinator.records_read, args=(first,))
        source.start()
        assert first.adding.wait(20)
        world.coordinator.records_read(40)
        first.may_go_on.set()
        source.join()
        assert world.triggered() == 1


def test_a_checkpoint_can_be_requested(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        answer = world.coordinator.request(RequestKind.MANUAL)
        world.complete()
        completed = answer.result(20)
        assert (completed.checkpoint, completed.is_savepoint) == (1, False)
        assert completed.path == str(world.dir.checkpoint_dir(1))


def test_only_so_many_are_in_flight_at_once(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=1.0, max_concurrent=2) as world:
        for _ in range(5):
            world.clock.advance(1.0)
            world.handled()
        assert world.live == [1, 2]


def test_a_source_injects_one_barrier_after_the_other(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=1.0, max_concurrent=2) as world:
        first = world.triggered()
        second = world.triggered(first)
        view = world.coordinator.view
        assert view.next_barrier(CheckpointId(0)) == first
        assert view.next_barrier(first) == second
        assert view.next_barrier(second) is None


def test_ids_are_higher_than_those_of_an_older_attempt(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        requested(world)
        world.triggered()
    with World(tmp_path, attempt="a2") as world:
        requested(world)
        assert world.triggered() > 1


# -- completion ---------------------------------------------------------------------------------


def test_a_checkpoint_is_complete_when_all_stages_have_answered(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        answer = world.coordinator.request(RequestKind.MANUAL)
        n = world.triggered()
        world.submit_snapshot(SOURCE, n)
        world.submit_snapshot(SINK, n, prepared=[b"file"])
        log = world.coordinator.live_checkpoint(n).event_log
        eventually(lambda: len(log.records()) == 3)
        world.handled()
        assert not answer.done()
        assert not local(world.dir.metadata(n)).exists()
        world.submit_snapshot(MIDDLE, n)
        answer.result(20)
        assert local(world.dir.metadata(n)).exists()
        names = [o.name for o in world.metadata(local(world.dir.checkpoint_dir(n))).operators]
        assert names == ["numbers", "count", "files"]
        eventually(lambda: len(world.committer.calls) == 1)


def test_completion_is_written_before_commits_begin(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        requested(world)
        world.complete(prepared=[b"file"])
        eventually(lambda: CommitsDone in map(type, world.entries()))
        kinds = [type(entry) for entry in world.entries()][2:]
        assert kinds == [CheckpointCompletedEntry, CommitsStarted, CommitsDone]


def test_a_sink_without_committables_commits_nothing(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        requested(world)
        world.complete()
        world.committed()
        assert CommitsStarted not in map(type, world.entries())
        assert world.committer.calls == []


def test_the_events_of_a_checkpoint_are_kept_in_order(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        requested(world)
        n = world.complete()
        record = world.record(n)
        assert record is not None
        assert record.status is CheckpointStatus.COMPLETED
        told = [(line.event.value, line.stage) for line in record.events]
        assert told[0] == ("triggered", None)
        assert sorted(told[1:4], key=str) == [
            ("acknowledged", "count"),
            ("acknowledged", "files"),
            ("acknowledged", "numbers"),
        ]
        assert told[4] == ("completed", None)


def test_a_long_pending_checkpoint_is_in_the_history_with_the_stages_that_acknowledged(
    tmp_path: Path,
) -> None:
    with World(tmp_path) as world:
        requested(world)
        n = world.triggered()
        world.submit_snapshot(SOURCE, n)
        log = world.coordinator.live_checkpoint(n).event_log
        eventually(lambda: len(log.records()) == 2)
        world.clock.advance(1.0)
        eventually(lambda: world.record(n) is not None)
        record = world.record(n)
        assert record is not None
        assert record.status is CheckpointStatus.PENDING
        assert [operator.name for operator in record.operators] == ["numbers"]
        world.submit_snapshot(SINK, n)
        world.submit_snapshot(MIDDLE, n)
        world.over(n)
        record = world.record(n)
        assert record is not None
        assert record.status is CheckpointStatus.COMPLETED


def test_functions_that_listen_are_notified_once(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        requested(world)
        n = world.complete()
        assert world.coordinator.has_notifications(MIDDLE)
        assert world.coordinator.take_notifications(MIDDLE) == [
            CheckpointNotification(NotificationKind.COMPLETE, n)
        ]
        assert world.coordinator.take_notifications(MIDDLE) == []
        assert world.coordinator.take_notifications(SINK) == []


def test_the_job_is_notified_of_completed_and_discarded_checkpoints(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=1.0) as world:
        first = world.complete()
        second = world.complete(first)
    assert world.job.completions == [first, second]
    assert world.job.discarded == [first]


# -- aborts -------------------------------------------------------------------------------------


def test_a_checkpoint_that_takes_too_long_is_aborted_and_names_the_missing_stages(
    tmp_path: Path,
) -> None:
    with World(tmp_path, timeout_s=600.0, tolerable_failures=1) as world:
        answer = world.coordinator.request(RequestKind.MANUAL)
        n = world.triggered()
        world.submit_snapshot(SOURCE, n)
        log = world.coordinator.live_checkpoint(n).event_log
        eventually(lambda: len(log.records()) == 2)
        world.clock.advance(600.0)
        with pytest.raises(CheckpointFailedError) as failed:
            answer.result(20)
        assert str(failed.value) == (
            "checkpoint 1 did not complete: it took longer than 600 s; missing: count, files; "
            "request it again"
        )
        record = world.record(n)
        assert record is not None
        assert record.status is CheckpointStatus.FAILED
        assert record.failure is not None
        assert record.failure.startswith("expired: ")
        assert world.coordinator.take_notifications(MIDDLE) == [
            CheckpointNotification(NotificationKind.ABORTED, n)
        ]
        assert world.job.failures == []
    assert not local(world.dir.checkpoint_dir(n)).exists()


def test_more_failures_than_tolerable_fail_the_job(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=1.0, tolerable_failures=1) as world:
        full = OSError("disk full")
        first = world.triggered()
        world.submit_snapshot(SOURCE, first, error=full)
        world.over(first)
        assert world.job.failures == []
        second = world.triggered(first)
        world.submit_snapshot(SOURCE, second, error=full)
        world.over(second)
        eventually(lambda: len(world.job.failures) == 1)
        (failure,) = world.job.failures
        assert isinstance(failure, TooManyFailedCheckpointsError)
        assert (failure.tolerable, failure.checkpoint) == (1, second)
        assert failure.reason == "numbers: disk full"


def test_a_completed_checkpoint_forgives_the_failures_before_it(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=1.0, tolerable_failures=1) as world:
        n = CheckpointId(0)
        for _ in range(3):
            n = world.triggered(n)
            world.submit_snapshot(SOURCE, n, error=OSError("disk full"))
            world.over(n)
            n = world.complete(n)
        assert world.job.failures == []


def test_a_failed_savepoint_is_reported_only_to_its_client(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        answer = world.coordinator.request(RequestKind.SAVEPOINT, str(tmp_path / "sp"))
        world.submit_snapshot(SOURCE, world.triggered(), error=OSError("disk full"))
        with pytest.raises(CheckpointFailedError, match="numbers: disk full"):
            answer.result(20)
        assert world.job.failures == []


def test_metadata_that_cannot_be_written_aborts_the_checkpoint(tmp_path: Path) -> None:
    with World(tmp_path, tolerable_failures=5) as world:
        requested(world)
        n = world.triggered()
        local(world.dir.checkpoint_dir(n)).write_text("in the way")
        world.acknowledge(n)
        world.over(n)
        record = world.record(n)
        assert record is not None
        assert record.failure is not None
        assert record.failure.startswith("finalize-failed: its metadata: ")


def test_a_newer_checkpoint_ends_the_older_ones_harmlessly(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=1.0, max_concurrent=2, tolerable_failures=0) as world:
        first = world.triggered()
        second = world.triggered(first)
        world.submit_snapshot(SOURCE, first)
        world.acknowledge(second)
        world.over(first)
        record = world.record(first)
        assert record is not None
        assert record.failure == f"subsumed: checkpoint {second} completed before it"
        assert world.job.failures == []
        assert first not in world.live


def test_an_older_checkpoint_in_flight_completes_before_a_newer_one(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=1.0, max_concurrent=2, retained=2) as world:
        first = world.triggered()
        second = world.triggered(first)
        for stage in (SOURCE, MIDDLE, SINK):
            world.submit_snapshot(stage, first)
            world.submit_snapshot(stage, second)
        world.over(second)
        done = [e.checkpoint for e in world.entries() if isinstance(e, CheckpointCompletedEntry)]
        assert done[:2] == [first, second]


# -- pending committables -----------------------------------------------------------------------


def test_what_an_aborted_checkpoint_prepared_belongs_to_the_next_one(tmp_path: Path) -> None:
    with World(tmp_path, tolerable_failures=5) as world:
        requested(world)
        first = world.triggered()
        world.submit_snapshot(SINK, first, prepared=[b"one"])
        world.submit_snapshot(MIDDLE, first, error=OSError("disk full"))
        world.over(first)
        requested(world)
        second = world.complete(first, prepared=[b"two"])
        assert world.committables_in(local(world.dir.checkpoint_dir(second))) == [b"one", b"two"]
        eventually(lambda: world.committer.calls == [[b"one", b"two"]])


def test_a_late_acknowledgement_releases_its_files_but_keeps_its_committables(
    tmp_path: Path,
) -> None:
    with World(tmp_path, tolerable_failures=5) as world:
        requested(world)
        first, persisting = world.triggered(), threading.Event()
        late = write(tmp_path / "late")
        world.submit_snapshot(SINK, first, files=[late], prepared=[b"one"], persisting=persisting)
        world.submit_snapshot(MIDDLE, first, error=OSError("disk full"))
        world.over(first)
        assert late.exists()
        persisting.set()
        eventually(lambda: not late.exists())
        requested(world)
        second = world.complete(first)
        assert world.committables_in(local(world.dir.checkpoint_dir(second))) == [b"one"]


def test_committed_output_is_not_pending_any_more(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        requested(world)
        first = world.complete(prepared=[b"one"])
        world.committed()
        requested(world)
        second = world.complete(first, prepared=[b"two"])
        assert world.committables_in(local(world.dir.checkpoint_dir(second))) == [b"two"]


def test_a_checkpoint_holds_committables_whose_commit_is_running(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.committer.may_go.clear()
        requested(world)
        first = world.complete(prepared=[b"one"])
        requested(world)
        second = world.complete(first, prepared=[b"two"])
        assert world.committables_in(local(world.dir.checkpoint_dir(second))) == [b"one", b"two"]
        world.committer.may_go.set()
        eventually(lambda: world.committer.calls == [[b"one"], [b"two"]])


def test_what_is_committed_while_the_attempt_ends_is_not_pending(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.committer.may_go.clear()
        requested(world)
        world.complete(prepared=[b"one"])
        stopping = threading.Thread(target=world.coordinator.stop)
        stopping.start()
        eventually(lambda: not world.coordinator._thread.is_alive())
        world.committer.may_go.set()
        stopping.join(20)
        assert world.committer.calls == [[b"one"]]
        assert world.coordinator.pending_committables() == {"files": []}


def test_a_commit_that_fails_fails_the_job(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.committer.error = OSError("gone")
        requested(world)
        world.complete(prepared=[b"one"])
        eventually(lambda: len(world.job.failures) == 1)
        assert isinstance(world.job.failures[0], CommitFailedError)
        assert CommitsDone not in map(type, world.entries())


def test_committables_prepared_while_the_coordinator_stops_stay_pending(tmp_path: Path) -> None:
    with World(tmp_path, enabled=False) as world:
        requested(world, RequestKind.SAVEPOINT, tmp_path / "sp")
        persisting = threading.Event()
        world.submit_snapshot(SINK, world.triggered(), prepared=[b"one"], persisting=persisting)
        stopping = threading.Thread(target=world.coordinator.stop)
        stopping.start()
        eventually(lambda: not world.coordinator._thread.is_alive())
        persisting.set()
        stopping.join(5)
        assert [c.data for c in world.coordinator.pending_committables()["files"]] == [b"one"]


# -- savepoints ---------------------------------------------------------------------------------


def test_a_savepoint_commits_nothing_subsumes_nothing_and_deletes_nothing(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        requested(world)
        first = world.complete()
        requested(world)
        pending = world.triggered(first)
        answer = world.coordinator.request(RequestKind.SAVEPOINT, str(tmp_path / "sp"))
        savepoint = world.triggered(pending)
        world.acknowledge(savepoint, prepared=[b"one"])
        assert answer.result(20).path == str(tmp_path / "sp")
        assert pending in world.live
        assert local(world.dir.metadata(first)).exists()
        assert world.committer.calls == []
        assert world.committables_in(tmp_path / "sp") == [b"one"]
        assert world.metadata(tmp_path / "sp").kind == "savepoint"
        assert not local(world.dir.checkpoint_dir(savepoint)).exists()


def test_what_a_savepoint_prepared_is_committed_with_the_next_checkpoint(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        requested(world, RequestKind.SAVEPOINT, tmp_path / "sp")
        savepoint = world.complete(prepared=[b"one"])
        requested(world)
        world.complete(savepoint, prepared=[b"two"])
        eventually(lambda: world.committer.calls == [[b"one", b"two"]])


@pytest.mark.parametrize("then", [RequestKind.MANUAL, RequestKind.SAVEPOINT])
def test_a_disposed_savepoint_is_forgotten_with_the_next_snapshot(
    tmp_path: Path, then: RequestKind
) -> None:
    with World(tmp_path) as world:
        requested(world, RequestKind.SAVEPOINT, tmp_path / "sp")
        savepoint = world.complete(prepared=[b"one"])
        eventually(lambda: savepoint in world.job.completions)
        dispose(tmp_path / "sp")
        requested(world, then, None if then is RequestKind.MANUAL else tmp_path / "other")
        following = world.complete(savepoint, prepared=[b"two"])
        eventually(lambda: savepoint in world.job.discarded)
        assert [c.checkpoint for c in world.journal.state().completed] == [following]


def test_stages_see_the_path_of_a_savepoint_and_that_sinks_must_flush(
    tmp_path: Path,
) -> None:
    with World(tmp_path) as world:
        requested(world, RequestKind.SAVEPOINT, tmp_path / "sp")
        n = world.triggered()
        assert world.coordinator.live_checkpoint(n).savepoint_path == str(tmp_path / "sp")
        assert world.coordinator.live_checkpoint(n).flush
        world.complete()
        requested(world)
        n = world.triggered(n)
        assert world.coordinator.live_checkpoint(n).savepoint_path is None
        assert not world.coordinator.live_checkpoint(n).flush


def test_an_older_checkpoint_does_not_end_a_savepoint(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        answer = world.coordinator.request(RequestKind.SAVEPOINT, str(tmp_path / "sp"))
        savepoint = world.triggered()
        requested(world)
        newer = world.triggered(savepoint)
        world.acknowledge(newer)
        world.over(newer)
        world.acknowledge(savepoint)
        assert answer.result(20).checkpoint == savepoint


# -- the end of a job ---------------------------------------------------------------------------


def test_the_last_checkpoint_comes_when_all_stages_have_ended(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=HOUR) as world:
        world.coordinator.stage_ended(SOURCE)
        world.coordinator.stage_ended(MIDDLE)
        assert world.live == []
        world.coordinator.stage_ended(SINK)
        n = world.triggered()
        assert world.coordinator.live_checkpoint(n).flush
        world.complete(prepared=[b"last"])
        eventually(lambda: len(world.job.ends) == 1)
        assert isinstance(world.job.ends[0], CompletedCheckpoint)
        assert world.committer.calls == [[b"last"]]


def test_the_job_ends_only_after_its_last_commits(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=HOUR) as world:
        world.committer.may_go.clear()
        world.all_end()
        world.complete(prepared=[b"last"])
        world.handled()
        assert world.job.ends == []
        world.committer.may_go.set()
        eventually(lambda: len(world.job.ends) == 1)


def test_a_last_checkpoint_that_fails_is_tried_again(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=HOUR, tolerable_failures=3) as world:
        world.all_end()
        first = world.triggered()
        world.submit_snapshot(SOURCE, first, error=OSError("disk full"))
        world.over(first)
        world.clock.advance(0.9)
        assert world.live == []
        world.clock.advance(0.1)
        world.complete(first)
        eventually(lambda: len(world.job.ends) == 1)


def test_without_checkpoints_the_end_of_data_is_the_end(tmp_path: Path) -> None:
    with World(tmp_path, enabled=False) as world:
        world.all_end()
        eventually(lambda: world.job.ends == [None])


def test_a_stop_pauses_sources_commits_and_ends_the_job(tmp_path: Path) -> None:
    with World(tmp_path, interval_s=1.0) as world:
        answer = world.coordinator.request(RequestKind.STOP, str(tmp_path / "sp"))
        eventually(lambda: world.coordinator.view.sources_paused)
        stop = max(world.live)
        for n in world.live:
            world.acknowledge(n, prepared=[b"%d" % n])
        assert answer.result(20).path == str(tmp_path / "sp")
        eventually(lambda: len(world.job.ends) == 1)
        assert b"%d" % stop in world.committer.calls[-1]
        ended = world.job.ends[0]
        assert ended is not None
        assert ended.is_savepoint
        world.clock.advance(10.0)
        assert world.live == []


def test_a_stop_that_fails_lets_the_job_go_on(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        answer = world.coordinator.request(RequestKind.STOP, str(tmp_path / "sp"))
        n = world.triggered()
        assert world.coordinator.view.sources_paused
        world.submit_snapshot(SOURCE, n, error=OSError("disk full"))
        with pytest.raises(CheckpointFailedError):
            answer.result(20)
        assert not world.coordinator.view.sources_paused
        requested(world)
        assert world.complete(n)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_job_whose_data_ended_while_a_stop_failed_comes_to_its_end(
    tmp_path: Path, enabled: bool
) -> None:
    with World(tmp_path, enabled=enabled, tolerable_failures=5) as world:
        answer = world.coordinator.request(RequestKind.STOP, str(tmp_path / "sp"))
        n = world.triggered()
        world.all_end()
        world.handled()
        world.submit_snapshot(SOURCE, n, error=OSError("disk full"))
        with pytest.raises(CheckpointFailedError):
            answer.result(20)
        if enabled:
            world.clock.advance(1.0)
            world.complete(n)
        eventually(lambda: len(world.job.ends) == 1)


def test_draining_waits_for_the_end_of_all_stages_then_writes_the_savepoint(
    tmp_path: Path,
) -> None:
    with World(tmp_path, interval_s=HOUR) as world:
        answer = world.coordinator.request(RequestKind.FINAL, str(tmp_path / "sp"), drain=True)
        assert world.live == []
        assert world.coordinator.view.draining
        world.all_end()
        world.complete(prepared=[b"last"])
        assert answer.result(20).path == str(tmp_path / "sp")
        eventually(lambda: len(world.job.ends) == 1)
        assert world.committer.calls == [[b"last"]]


def test_requests_are_answered_when_the_attempt_ends_before(tmp_path: Path) -> None:
    world = World(tmp_path)
    with world:
        in_flight = world.coordinator.request(RequestKind.MANUAL)
        world.triggered()
        waiting = world.coordinator.request(RequestKind.MANUAL)
    afterwards = world.coordinator.request(RequestKind.MANUAL)
    for answer in (in_flight, waiting, afterwards):
        with pytest.raises(CheckpointFailedError, match="retry when it is running"):
            answer.result(1)


def test_requests_are_answered_when_the_coordinator_has_failed(tmp_path: Path) -> None:
    world = World(tmp_path)
    with world:
        another_driver(world)
        requested(world)
        eventually(lambda: world.job.failures != [])
        answer = world.coordinator.request(RequestKind.MANUAL)
    with pytest.raises(CheckpointFailedError):
        answer.result(1)


# -- retention ----------------------------------------------------------------------------------


def test_so_many_checkpoints_are_kept_with_all_the_files_they_name(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    with World(tmp_path, retained=2) as world:
        n = CheckpointId(0)
        for i in range(1, 5):
            requested(world)
            n = world.triggered(n)
            mine = [write(shared / "base"), write(shared / f"{i - 1}"), write(shared / f"{i}")]
            world.submit_snapshot(MIDDLE, n, files=mine)
            world.submit_snapshot(SOURCE, n)
            world.submit_snapshot(SINK, n)
            world.over(n)
        eventually(lambda: not (shared / "1").exists())
        assert sorted(p.name for p in shared.iterdir()) == ["2", "3", "4", "base"]
        assert world.dir.checkpoints_on_disk() == [3, 4]
        assert world.store.retained == [3, 4]


def test_a_checkpoint_is_discarded_in_the_journal_before_it_is_deleted(
    tmp_path: Path,
) -> None:
    with World(tmp_path) as world:
        requested(world)
        first = world.complete()
        requested(world)
        world.complete(first)
        eventually(lambda: not local(world.dir.checkpoint_dir(first)).exists())
        gone = [e.checkpoint for e in world.entries() if isinstance(e, CheckpointDiscarded)]
        assert gone == [first]


def test_files_of_a_failed_checkpoint_are_deleted_unless_something_else_needs_them(
    tmp_path: Path,
) -> None:
    both, alone = write(tmp_path / "both"), write(tmp_path / "alone")
    with World(tmp_path, tolerable_failures=5) as world:
        live = world.files.acquire([both])
        requested(world)
        n = world.triggered()
        world.submit_snapshot(MIDDLE, n, files=[both, alone])
        world.submit_snapshot(SOURCE, n, error=OSError("disk full"))
        world.over(n)
        eventually(lambda: not alone.exists())
        assert both.exists()
        live.release()
        assert not both.exists()


# -- fencing ------------------------------------------------------------------------------------


def test_a_fenced_driver_completes_commits_and_deletes_nothing(
    tmp_path: Path,
) -> None:
    kept = write(tmp_path / "kept")
    with World(tmp_path) as world:
        requested(world)
        first = world.triggered()
        world.submit_snapshot(MIDDLE, first, files=[kept])
        world.submit_snapshot(SOURCE, first)
        world.submit_snapshot(SINK, first)
        world.over(first)
        requested(world)
        second = world.triggered(first)
        another_driver(world)
        world.acknowledge(second, prepared=[b"one"])
        eventually(lambda: len(world.job.failures) == 1)
        assert isinstance(world.job.failures[0], FencedError)
    assert world.committer.calls == []
    assert local(world.dir.metadata(first)).exists()
    assert kept.exists()
    done = [e.checkpoint for e in world.entries() if isinstance(e, CheckpointCompletedEntry)]
    assert done == [first]


def test_a_driver_that_is_fenced_before_its_commits_start_does_not_commit(
    tmp_path: Path,
) -> None:
    with World(tmp_path) as world:
        world.committer.may_go.clear()
        requested(world)
        first = world.complete(prepared=[b"one"])
        requested(world)
        world.complete(first, prepared=[b"two"])
        eventually(lambda: CommitsStarted in map(type, world.entries()))
        another_driver(world)
        world.committer.may_go.set()
        eventually(lambda: len(world.job.failures) == 2)
        assert all(isinstance(failure, FencedError) for failure in world.job.failures)
        assert world.committer.calls == [[b"one"]]


def test_a_clock_that_passes_the_due_time_between_two_readings_loses_no_checkpoint(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, interval_s=10.0)
    readings = iter([1_009.9999])
    # Every reading but the first is after the due time; no event wakes the coordinator.
    world.coordinator._clock = lambda: next(readings, 1_010.0001)
    with world:
        eventually(lambda: list(world.coordinator.view.checkpoints) == [CheckpointId(1)])
