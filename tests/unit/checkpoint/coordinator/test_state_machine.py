"""The decisions of the coordinator: events and time in, actions out, without threads and files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import pytest

from penstock.checkpoint.barriers.alignment import BarrierHandling
from penstock.checkpoint.barriers.in_flight_data import ChannelStateAbortedError
from penstock.checkpoint.coordinator.actions import (
    AbortCheckpoint,
    Action,
    Answer,
    CompleteCheckpoint,
    DiscardSnapshot,
    EndJob,
    FailJob,
    ReachCrashPoint,
    TriggerCheckpoint,
    WakeLoops,
    WriteMetadata,
)
from penstock.checkpoint.coordinator.events import (
    BarrierPassed,
    CheckpointRequested,
    CommitsCompleted,
    CommitsFailed,
    CommittablesPrepared,
    RecordsRead,
    SnapshotAcknowledged,
    SnapshotDeclined,
    StageEnded,
)
from penstock.checkpoint.coordinator.failure_manager import CheckpointFailureReason
from penstock.checkpoint.coordinator.pending_checkpoint import FrozenSnapshot, StageSnapshot
from penstock.checkpoint.coordinator.request_decider import CheckpointRequest, RequestKind
from penstock.checkpoint.coordinator.state_machine import CheckpointStateMachine
from penstock.checkpoint.event_log import CheckpointEventLog
from penstock.checkpoint.settings import Guarantee, read_checkpoint_settings
from penstock.checkpoint.shared_state_registry import SharedStateRegistry
from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.checkpoint.storage.metadata import CommittableState, OperatorSnapshot, SinkState
from penstock.common.configuration import Configuration
from penstock.errors import CheckpointFailedError, TooManyFailedCheckpointsError
from penstock.ids import CheckpointId, StageId
from tests.unit.checkpoint.coordinator.coordinated_job import MIDDLE, SINK, SOURCE, STAGES

MANUAL = CheckpointRequest(RequestKind.MANUAL, "r1")
STOP = CheckpointRequest(RequestKind.STOP, "r2", "/sp")
DRAIN = CheckpointRequest(RequestKind.FINAL, "r3", "/sp")
FULL = OSError("disk full")

A = TypeVar("A", bound=Action)


class Machine(CheckpointStateMachine):
    """A state machine at a time that tests set, with ids in order."""

    def __init__(self, **settings: Any) -> None:
        quiet: dict[str, Any] = {"enabled": True, "interval_s": None, "records": None}
        read = read_checkpoint_settings(Configuration())
        super().__init__(STAGES, replace(read, **{**quiet, **settings}), 0.0)
        self.now = 0.0
        self.last = CheckpointId(0)

    def at(self, now: float) -> list[Action]:
        """Let time pass; return what was due, triggers carried out."""
        self.now = now
        return self.due()

    def due(self) -> list[Action]:
        found: list[Action] = []
        while actions := self.advance(self.now):
            found += actions
            for trigger in some(actions, TriggerCheckpoint):
                self.last = CheckpointId(self.last + 1)
                log = CheckpointEventLog(self.last, lambda: self.now)
                found += self.trigger(trigger.request, log, self.now)
        return found

    def on(self, *events: Any) -> list[Action]:
        return [action for event in events for action in self.handle(event, self.now)]

    def acknowledge(self, *stages: StageId) -> list[Action]:
        return self.on(*(acknowledged(stage, self.last) for stage in stages))

    def completes(self) -> list[Action]:
        """Let all stages acknowledge the last checkpoint, and its metadata be written."""
        (write,) = some(self.acknowledge(SOURCE, MIDDLE, SINK), WriteMetadata)
        return self.complete(write, completed(self.last), self.now)


def some(actions: list[Action], kind: type[A]) -> list[A]:
    return [action for action in actions if isinstance(action, kind)]


def frozen(stage: StageId, checkpoint: CheckpointId) -> FrozenSnapshot:
    lease = SharedStateRegistry().acquire()
    return FrozenSnapshot(stage, checkpoint, lease, lambda _: StageSnapshot([], lease))


def acknowledged(stage: StageId, checkpoint: CheckpointId) -> SnapshotAcknowledged:
    name = STAGES[stage].name
    sink = SinkState([], []) if stage == SINK else None
    operator = OperatorSnapshot(name, name, "map", 1, 128, 1, sink=sink)
    snapshot = StageSnapshot([operator], SharedStateRegistry().acquire())
    return SnapshotAcknowledged(frozen(stage, checkpoint), snapshot)


def completed(checkpoint: CheckpointId) -> CompletedCheckpoint:
    return CompletedCheckpoint(checkpoint, f"/chk-{checkpoint}", False, 0, 0.0, 0.0, 0, 0)


def requested(machine: Machine, request: CheckpointRequest = MANUAL, **more: Any) -> list[Action]:
    return [*machine.on(CheckpointRequested(request, **more)), *machine.due()]


# -- triggers -----------------------------------------------------------------------------------


def test_nothing_is_due_in_a_job_without_checkpoints() -> None:
    machine = Machine(enabled=False)
    assert machine.at(1e9) == []
    assert machine.seconds_until_due(1e9) is None


def test_a_checkpoint_is_due_after_the_interval() -> None:
    machine = Machine(interval_s=10.0)
    assert machine.seconds_until_due(4.0) == 6.0
    assert machine.at(9.9) == []
    trigger, point, wake = machine.at(10.0)
    assert isinstance(trigger, TriggerCheckpoint)
    assert isinstance(point, ReachCrashPoint)
    assert isinstance(wake, WakeLoops)
    assert machine.view.barriers == {1: BarrierHandling.ALIGNED}


def test_records_count_from_one_trigger_to_the_next() -> None:
    machine = Machine(records=100)
    machine.on(RecordsRead(60), RecordsRead(39))
    assert machine.due() == []
    machine.on(RecordsRead(1))
    assert some(machine.due(), TriggerCheckpoint)
    machine.on(RecordsRead(99))
    machine.completes()
    assert machine.due() == []
    machine.on(RecordsRead(1))
    assert some(machine.due(), TriggerCheckpoint)


@pytest.mark.parametrize(
    ("settings", "request_", "expected"),
    [
        ({}, MANUAL, BarrierHandling.ALIGNED),
        ({"mode": Guarantee.AT_LEAST_ONCE}, MANUAL, BarrierHandling.AT_LEAST_ONCE),
        ({"mode": Guarantee.AT_LEAST_ONCE}, STOP, BarrierHandling.ALIGNED),
        ({"unaligned": True, "aligned_timeout_s": 0.0}, MANUAL, BarrierHandling.UNALIGNED),
        ({"unaligned": True, "aligned_timeout_s": 0.0}, STOP, BarrierHandling.ALIGNED),
        ({"unaligned": True, "aligned_timeout_s": 5.0}, MANUAL, BarrierHandling.ALIGNED),
    ],
)
def test_how_barriers_are_handled_follows_from_the_settings_and_savepoints_are_aligned(
    settings: dict[str, Any], request_: CheckpointRequest, expected: BarrierHandling
) -> None:
    machine = Machine(**settings)
    requested(machine, request_)
    assert list(machine.view.barriers.values()) == [expected]


def test_an_alignment_that_takes_too_long_becomes_unaligned() -> None:
    machine = Machine(unaligned=True, aligned_timeout_s=5.0)
    requested(machine)
    before = machine.view
    assert machine.seconds_until_due(1.0) == 4.0
    assert [type(action) for action in machine.at(5.0)] == [WakeLoops]
    assert machine.view.barriers == {1: BarrierHandling.UNALIGNED}
    assert before.barriers == {1: BarrierHandling.ALIGNED}, "a view that was read does not change"


def test_a_barrier_that_all_stages_have_passed_stays_aligned() -> None:
    machine = Machine(unaligned=True, aligned_timeout_s=5.0)
    requested(machine)
    machine.on(*(BarrierPassed(stage, machine.last) for stage in (SOURCE, MIDDLE, SINK)))
    assert machine.at(5.0) == []
    assert machine.view.barriers == {1: BarrierHandling.ALIGNED}


def test_stages_learn_from_the_view_where_a_savepoint_goes() -> None:
    machine = Machine()
    requested(machine, STOP)
    live = machine.view.checkpoints[machine.last]
    assert (str(live.savepoint_path), live.flush, live.triggered) == ("/sp", True, 0.0)
    assert machine.view.sources_paused
    assert machine.view.last_checkpoint is not None


# -- completion ---------------------------------------------------------------------------------


def test_metadata_is_written_when_the_last_stage_has_acknowledged() -> None:
    machine = Machine()
    requested(machine)
    assert some(machine.acknowledge(SOURCE, MIDDLE), WriteMetadata) == []
    machine.on(CommittablesPrepared("files", [CommittableState(1, b"part")]))
    (write,) = some(machine.acknowledge(SINK), WriteMetadata)
    assert [operator.name for operator in write.operators] == ["numbers", "count", "files"]
    assert write.operators[2].sink == SinkState([CommittableState(1, b"part")], [])
    assert list(machine.view.barriers) == [1], "it is not complete yet"


def test_a_completed_checkpoint_subsumes_older_ones_and_commits_everything_up_to_it() -> None:
    machine = Machine(max_concurrent=2)
    requested(machine)
    requested(machine, replace(MANUAL, id="newer"))
    prepared = [CommittableState(1, b"one"), CommittableState(2, b"two")]
    machine.on(CommittablesPrepared("files", prepared))
    complete, answer, wake = machine.completes()
    assert isinstance(complete, CompleteCheckpoint)
    assert complete.committables == {"files": prepared}
    (abort,) = some(list(complete.subsumed), AbortCheckpoint)
    assert (abort.pending.id, abort.reason) == (1, CheckpointFailureReason.SUBSUMED)
    assert isinstance(answer, Answer)
    assert answer.request == "newer"
    assert isinstance(wake, WakeLoops)
    machine.on(CommitsCompleted(completed(CheckpointId(2)), ends_the_job=False))
    assert machine.committables == {"files": []}


def test_a_savepoint_commits_nothing_and_subsumes_nothing() -> None:
    machine = Machine()
    requested(machine)
    requested(machine, CheckpointRequest(RequestKind.SAVEPOINT, "r2", "/sp"))
    (complete,) = some(machine.completes(), CompleteCheckpoint)
    assert (complete.committables, complete.subsumed) == (None, [])
    assert list(machine.view.barriers) == [1]


def test_an_acknowledgement_that_comes_twice_or_late_is_discarded() -> None:
    machine = Machine()
    requested(machine)
    machine.acknowledge(SOURCE)
    (discard,) = some(machine.acknowledge(SOURCE), DiscardSnapshot)
    assert not discard.is_late
    machine.on(SnapshotDeclined(frozen(MIDDLE, machine.last), FULL))
    (discard,) = some(machine.acknowledge(SINK), DiscardSnapshot)
    assert discard.is_late


# -- failures -----------------------------------------------------------------------------------


def test_a_checkpoint_that_expires_says_which_stages_are_missing() -> None:
    machine = Machine(timeout_s=600.0)
    requested(machine)
    machine.acknowledge(MIDDLE)
    assert machine.seconds_until_due(100.0) == 500.0
    (abort,) = some(machine.at(600.0), AbortCheckpoint)
    assert abort.reason is CheckpointFailureReason.EXPIRED
    assert abort.message == "it took longer than 600 s; missing: files, numbers"
    assert machine.view.barriers == {}


def test_one_failure_more_than_tolerable_fails_the_job() -> None:
    machine = Machine(tolerable_failures=1)
    for expected in (0, 1):
        requested(machine)
        declined = machine.on(SnapshotDeclined(frozen(SOURCE, machine.last), FULL))
        assert len(some(declined, FailJob)) == expected
    (failure,) = some(declined, FailJob)
    assert isinstance(failure.error, TooManyFailedCheckpointsError)


def test_a_snapshot_that_the_end_of_the_attempt_interrupts_is_no_failure() -> None:
    machine = Machine(tolerable_failures=0)
    requested(machine)
    actions = machine.on(SnapshotDeclined(frozen(SOURCE, machine.last), ChannelStateAbortedError()))
    assert some(actions, AbortCheckpoint)[0].reason is CheckpointFailureReason.JOB_STOPPING
    assert some(actions, FailJob) == []


def test_metadata_that_cannot_be_written_aborts_the_checkpoint() -> None:
    machine = Machine()
    requested(machine)
    (write,) = some(machine.acknowledge(SOURCE, MIDDLE, SINK), WriteMetadata)
    (abort,) = some(machine.metadata_failed(write.pending, FULL, 1.0), AbortCheckpoint)
    assert abort.reason is CheckpointFailureReason.FINALIZE_FAILED
    assert abort.message == "its metadata: disk full"


def test_the_minimum_pause_begins_when_a_checkpoint_ends_either_way() -> None:
    machine = Machine(interval_s=1.0, min_pause_s=5.0, tolerable_failures=1)
    machine.at(5.0)
    machine.now = 20.0
    machine.on(SnapshotDeclined(frozen(SOURCE, machine.last), FULL))
    assert machine.at(24.9) == []
    assert some(machine.at(25.0), TriggerCheckpoint)


# -- the end of a job ---------------------------------------------------------------------------


def test_the_last_checkpoint_comes_when_all_stages_have_ended() -> None:
    machine = Machine()
    machine.on(StageEnded(SOURCE), StageEnded(MIDDLE))
    assert machine.due() == []
    machine.on(StageEnded(SINK))
    (trigger,) = some(machine.due(), TriggerCheckpoint)
    assert trigger.request.kind is RequestKind.FINAL


def test_the_last_checkpoint_is_tried_again_after_a_pause() -> None:
    machine = Machine(tolerable_failures=1)
    machine.on(*map(StageEnded, (SOURCE, MIDDLE, SINK)))
    machine.due()
    machine.on(SnapshotDeclined(frozen(SOURCE, machine.last), FULL))
    assert not machine.view.sources_paused
    assert machine.view.last_checkpoint is None
    assert machine.at(0.9) == []
    assert machine.seconds_until_due(0.75) == 0.25
    assert some(machine.at(1.0), TriggerCheckpoint)


def test_a_job_without_checkpoints_ends_with_its_data() -> None:
    machine = Machine(enabled=False)
    assert machine.on(*map(StageEnded, (SOURCE, MIDDLE, SINK))) == [EndJob(None)]


def test_a_stop_is_answered_after_its_commits() -> None:
    machine = Machine()
    requested(machine, STOP)
    assert some(machine.completes(), Answer) == []
    done = completed(machine.last)
    assert machine.on(CommitsCompleted(done, ends_the_job=True)) == [
        Answer(STOP.id, done),
        EndJob(done),
    ]


def test_a_stop_whose_commits_fail_is_answered_with_the_failure() -> None:
    machine = Machine()
    requested(machine, STOP)
    machine.completes()
    answer, fail = machine.on(CommitsFailed(completed(machine.last), FULL))
    assert isinstance(answer, Answer)
    assert isinstance(answer.result, CheckpointFailedError)
    assert fail == FailJob(FULL)


def test_draining_ends_sources_at_once_and_a_failure_of_its_savepoint_fails_the_job() -> None:
    machine = Machine(interval_s=1.0)
    assert [type(action) for action in requested(machine, DRAIN, drain=True)] == [WakeLoops]
    assert machine.view.draining
    assert machine.at(10.0) == [], "no periodic checkpoints any more"
    machine.on(*map(StageEnded, (SOURCE, MIDDLE, SINK)))
    machine.due()
    actions = machine.on(SnapshotDeclined(frozen(SOURCE, machine.last), FULL))
    assert isinstance(some(actions, FailJob)[0].error, CheckpointFailedError)


def test_a_checkpoint_that_became_due_since_the_last_look_is_not_waited_for() -> None:
    machine = Machine(interval_s=10.0)
    assert machine.advance(9.999) == []
    assert machine.seconds_until_due(10.001) == 0.0
