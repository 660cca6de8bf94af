"""Pending checkpoints, and what the history keeps of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.checkpoint.barriers.alignment import BarrierHandling
from penstock.checkpoint.coordinator.failure_manager import CheckpointFailureReason
from penstock.checkpoint.coordinator.pending_checkpoint import (
    PendingCheckpoint,
    StageSnapshot,
)
from penstock.checkpoint.coordinator.request_decider import CheckpointRequest, RequestKind
from penstock.checkpoint.event_log import CheckpointEvent, CheckpointEventLog
from penstock.checkpoint.history import CheckpointStatus
from penstock.checkpoint.shared_state_registry import SharedStateRegistry
from penstock.checkpoint.storage.metadata import ChannelStats, OperatorSnapshot, SubtaskStats
from penstock.ids import CheckpointId, StageId
from tests.local_paths import local
from tests.unit.checkpoint.coordinator.coordinated_job import World

OPERATOR = OperatorSnapshot("count", "count", "map", 1, 128, 1)
EXPIRED = CheckpointFailureReason.EXPIRED


def pending(
    n: int, kind: RequestKind = RequestKind.MANUAL, path: Path | None = None
) -> PendingCheckpoint:
    request = CheckpointRequest(kind, "r1", None if path is None else str(path))
    log = CheckpointEventLog(CheckpointId(n), clock=lambda: 1.25)
    return PendingCheckpoint(CheckpointId(n), request, 1.0, 1.0, 9.0, log, {StageId(0)})


def test_a_history_that_cannot_be_written_fails_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    local(world.dir.path / "history").write_text("in the way")
    world.stats.record_failure(pending(1), EXPIRED, "late")


def test_blocked_and_in_flight_bytes_are_added_up_in_the_statistics(tmp_path: Path) -> None:
    world = World(tmp_path)
    stats = [SubtaskStats(blocked_bytes=5, in_flight_bytes=3), SubtaskStats(blocked_bytes=2)]
    channels = [ChannelStats("src", "Source", 0, 7, 3, 1)]
    checkpoint = pending(1)
    checkpoint.barrier_handling = BarrierHandling.UNALIGNED
    operator = OperatorSnapshot("c", "c", "map", 2, 128, 1, stats=stats, channels=channels)
    checkpoint.acknowledge(StageId(0), StageSnapshot([operator], world.files.acquire()))
    world.stats.record_failure(checkpoint, EXPIRED, "late")
    record = world.history.checkpoint(1)
    assert record is not None
    assert (record.barriers, record.blocked_bytes, record.in_flight_bytes) == ("unaligned", 7, 3)
    assert record.operators[0].channels == channels


def test_work_after_the_completion_does_not_count_as_duration(tmp_path: Path) -> None:
    world = World(tmp_path)
    checkpoint = pending(1)
    checkpoint.event_log.record(CheckpointEvent.COMPLETED)
    completed = world.store.write(checkpoint.id, [OPERATOR], checkpoint.triggered)
    world.stats.record_completed(checkpoint, completed)
    record = world.history.checkpoint(1)
    assert record is not None
    assert record.duration_s == 0.25


def test_a_checkpoint_is_written_down_while_it_is_under_way_if_that_takes_long(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    checkpoint = pending(1)
    began = checkpoint.triggered
    assert world.stats.record_long_running([checkpoint], began + 0.25) == [0.75]
    assert world.history.checkpoints() == []
    assert world.stats.record_long_running([checkpoint], began + 1) == []
    (record,) = world.history.checkpoints()
    assert (record.status, record.operators) == (CheckpointStatus.PENDING, [])


def test_it_is_written_again_when_it_has_come_further_and_only_then(tmp_path: Path) -> None:
    world = World(tmp_path)
    checkpoint = pending(1)
    world.stats.record_long_running([checkpoint], 100.0)
    path = world.dir.path / "history" / "000000000001.json"
    local(path).unlink()
    world.stats.record_long_running([checkpoint], 101.0)
    assert not local(path).exists()
    checkpoint.acknowledge(StageId(0), StageSnapshot([OPERATOR], SharedStateRegistry().acquire()))
    world.stats.record_long_running([checkpoint], 102.0)
    (record,) = world.history.checkpoints()
    assert [operator.uid for operator in record.operators] == ["count"]
    checkpoint.barrier_handling = BarrierHandling.UNALIGNED
    world.stats.record_long_running([checkpoint], 103.0)
    (record,) = world.history.checkpoints()
    assert record.barriers == "unaligned"
    world.stats.record_failure(checkpoint, EXPIRED, "late")
    (record,) = world.history.checkpoints()
    assert record.status is CheckpointStatus.FAILED


# -- a checkpoint under way ---------------------------------------------------------------------


def test_a_stage_acknowledges_once() -> None:
    checkpoint, snapshot = pending(1), StageSnapshot([OPERATOR], SharedStateRegistry().acquire())
    assert not checkpoint.is_complete
    assert checkpoint.acknowledge(StageId(0), snapshot)
    assert checkpoint.is_complete
    assert not checkpoint.acknowledge(StageId(0), snapshot)
    assert list(checkpoint.operators()) == [OPERATOR]


@pytest.mark.parametrize(
    ("kind", "path", "flush", "ends"),
    [
        (RequestKind.PERIODIC, None, False, False),
        (RequestKind.MANUAL, None, False, False),
        (RequestKind.SAVEPOINT, Path("/sp"), True, False),
        (RequestKind.FINAL, None, True, True),
        (RequestKind.FINAL, Path("/sp"), True, True),
        (RequestKind.STOP, Path("/sp"), True, True),
    ],
)
def test_what_a_request_means_for_sinks_and_for_the_job(
    kind: RequestKind, path: Path | None, flush: bool, ends: bool
) -> None:
    checkpoint = pending(1, kind, path)
    assert (checkpoint.flush, checkpoint.ends_the_job) == (flush, ends)
    assert checkpoint.is_savepoint == (path is not None)
