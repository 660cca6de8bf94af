"""One checkpoint in Flink's JSON: as a whole, by vertex, and by subtask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.barriers.alignment import BarrierHandling
from penstock.checkpoint.history import CheckpointStatus, OperatorStats
from penstock.checkpoint.storage.metadata import SubtaskStats
from penstock.client.job_overview import ShownCheckpoint, is_savepoint
from penstock.serve.flink_json.percentiles import summary
from penstock.serve.flink_json.statuses import millis
from penstock.serve.jobs.hex_ids import hex_id
from penstock.serve.jobs.vertices import Vertex

_STATUS = {
    CheckpointStatus.PENDING: ("in_progress", "IN_PROGRESS"),
    CheckpointStatus.COMPLETED: ("completed", "COMPLETED"),
    CheckpointStatus.FAILED: ("failed", "FAILED"),
}


@dataclass(frozen=True, slots=True)
class VertexStats:
    """The statistics of one vertex in one checkpoint: those of the operators of its chain."""

    id: str
    subtasks: tuple[SubtaskStats, ...]
    """Per subtask: times of its slowest operator, sizes of all."""

    @property
    def acknowledged(self) -> list[SubtaskStats]:
        """The subtasks that have acknowledged."""
        return [stats for stats in self.subtasks if stats.acknowledged > 0]


def vertex_stats(record: ShownCheckpoint, vertices: Sequence[Vertex]) -> list[VertexStats]:
    """Return the statistics by vertex; of a plan that the job has no more, by operator."""
    operators = {operator.uid: operator for operator in record.operators}
    found = []
    for vertex in vertices:
        own = [operators.pop(s.uid) for s in vertex.steps if s.uid in operators]
        known = [operator for operator in own if operator.stats]
        if known:
            found.append(VertexStats(vertex.id, _joined(known)))
        else:
            found.append(VertexStats(vertex.id, (SubtaskStats(),) * vertex.parallelism))
    others = [operator for operator in operators.values() if operator.stats]
    return found + [VertexStats(hex_id(o.uid), tuple(o.stats)) for o in others]


def checkpoint_json(
    record: ShownCheckpoint, stats: Sequence[VertexStats], *, with_tasks: bool
) -> dict[str, Any]:
    """Return a checkpoint, with its vertices or without them."""
    class_name, status = _STATUS[record.status]
    savepoint = is_savepoint(record)
    shown: dict[str, Any] = {
        "className": class_name,
        "id": record.id,
        "status": status,
        "is_savepoint": savepoint,
        "savepointFormat": "CANONICAL" if savepoint else None,
        "trigger_timestamp": millis(record.triggered),
        **_latest(stats),
        "checkpointed_size": record.new_bytes,
        "state_size": record.full_bytes,
        "end_to_end_duration": millis(record.duration_s),
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": record.in_flight_bytes,
        "num_subtasks": sum(len(vertex.subtasks) for vertex in stats),
        "num_acknowledged_subtasks": sum(len(vertex.acknowledged) for vertex in stats),
        "checkpoint_type": _type(record, savepoint),
        "tasks": {v.id: vertex_json(record, v) for v in stats} if with_tasks else {},
    }
    if record.status is CheckpointStatus.COMPLETED:
        shown |= {"external_path": record.path, "discarded": record.discarded}
    if record.status is CheckpointStatus.FAILED:
        failed = millis(record.triggered + record.duration_s)
        shown |= {"failure_timestamp": failed, "failure_message": record.failure}
    ours = {
        "penstock-kind": record.kind,
        "penstock-attempt": record.attempt,
        "penstock-barriers": record.barriers,
        "penstock-blocked-bytes": record.blocked_bytes,
    }
    if with_tasks:
        ours |= {"penstock-events": record.events, "penstock-operators": _operators(record)}
    return shown | ours


def vertex_json(record: ShownCheckpoint, vertex: VertexStats) -> dict[str, Any]:
    """Return what one vertex did for a checkpoint."""
    latest = _latest([vertex])
    acknowledged = vertex.acknowledged
    is_complete = len(acknowledged) == len(vertex.subtasks)
    status = "COMPLETED" if is_complete else _STATUS[record.status][1]
    ends = [stats.acknowledged - record.triggered for stats in acknowledged]
    return {
        "id": record.id,
        "status": status,
        **latest,
        "checkpointed_size": sum(stats.new_bytes for stats in vertex.subtasks),
        "state_size": sum(stats.full_bytes for stats in vertex.subtasks),
        "end_to_end_duration": millis(max(ends)) if ends else -1,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": sum(stats.in_flight_bytes for stats in vertex.subtasks),
        "num_subtasks": len(vertex.subtasks),
        "num_acknowledged_subtasks": len(acknowledged),
    }


def subtasks_json(record: ShownCheckpoint, vertex: VertexStats) -> dict[str, Any]:
    """Return what the subtasks of one vertex did for a checkpoint."""
    found = vertex.acknowledged
    durations = {
        "sync": summary(millis(stats.sync_s) for stats in found),
        "async": summary(millis(stats.async_s) for stats in found),
    }
    alignment = {
        "buffered": summary(0 for _ in found),
        "processed": summary(0 for _ in found),
        "persisted": summary(stats.in_flight_bytes for stats in found),
        "duration": summary(millis(stats.alignment_s) for stats in found),
    }
    ends = (millis(stats.acknowledged - record.triggered) for stats in found)
    return vertex_json(record, vertex) | {
        "summary": {
            "checkpointed_size": summary(stats.new_bytes for stats in found),
            "state_size": summary(stats.full_bytes for stats in found),
            "end_to_end_duration": summary(ends),
            "checkpoint_duration": durations,
            "alignment": alignment,
            "start_delay": summary(millis(stats.start_delay_s) for stats in found),
        },
        "subtasks": [_subtask(record, index, stats) for index, stats in enumerate(vertex.subtasks)],
    }


def _subtask(record: ShownCheckpoint, index: int, stats: SubtaskStats) -> dict[str, Any]:
    if stats.acknowledged <= 0:
        return {"className": "pending", "index": index, "status": "pending_or_failed"}
    return {
        "className": "completed",
        "index": index,
        "status": "completed",
        "ack_timestamp": millis(stats.acknowledged),
        "end_to_end_duration": millis(stats.acknowledged - record.triggered),
        "checkpointed_size": stats.new_bytes,
        "state_size": stats.full_bytes,
        "checkpoint": {"sync": millis(stats.sync_s), "async": millis(stats.async_s)},
        "alignment": {
            "buffered": 0,
            "processed": 0,
            "persisted": stats.in_flight_bytes,
            "duration": millis(stats.alignment_s),
        },
        "start_delay": millis(stats.start_delay_s),
        "unaligned_checkpoint": stats.unaligned,
        "aborted": False,
        "penstock-blocked-bytes": stats.blocked_bytes,
    }


def _latest(stats: Sequence[VertexStats]) -> Mapping[str, int]:
    times = [s.acknowledged for vertex in stats for s in vertex.acknowledged]
    return {"latest_ack_timestamp": millis(max(times, default=None))}


def _type(record: ShownCheckpoint, savepoint: bool) -> str:
    if savepoint:
        return "SYNC_SAVEPOINT" if record.kind in ("stop", "final") else "SAVEPOINT"
    unaligned = record.barriers == BarrierHandling.UNALIGNED.value
    return "UNALIGNED_CHECKPOINT" if unaligned else "CHECKPOINT"


def _operators(record: ShownCheckpoint) -> list[dict[str, Any]]:
    return [
        {
            "uid": operator.uid,
            "name": operator.name,
            "subtasks": operator.stats,
            "channels": operator.channels,
        }
        for operator in record.operators
    ]


def _joined(operators: Sequence[OperatorStats]) -> tuple[SubtaskStats, ...]:
    """Return the statistics of the subtasks of a chain from those of its operators.

    The operators of a chain are frozen and stored together: their times are not added up.
    """
    count = max(len(operator.stats) for operator in operators)
    rows = [
        [operator.stats[i] for operator in operators if i < len(operator.stats)]
        for i in range(count)
    ]
    return tuple(
        SubtaskStats(
            start_delay_s=max(s.start_delay_s for s in row),
            alignment_s=max(s.alignment_s for s in row),
            sync_s=max(s.sync_s for s in row),
            async_s=max(s.async_s for s in row),
            # A subtask has acknowledged when all of its operators have.
            acknowledged=0.0
            if any(s.acknowledged <= 0 for s in row)
            else max(s.acknowledged for s in row),
            blocked_bytes=sum(s.blocked_bytes for s in row),
            new_bytes=sum(s.new_bytes for s in row),
            full_bytes=sum(s.full_bytes for s in row),
            in_flight_bytes=sum(s.in_flight_bytes for s in row),
            unaligned=any(s.unaligned for s in row),
        )
        for row in rows
    )
