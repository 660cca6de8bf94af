"""What a stage puts into a checkpoint: frozen at the barrier, made durable behind it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.checkpoint.metadata import (
    CommittableState,
    OperatorSnapshot,
    SinkState,
    SourceState,
    SubtaskStats,
)
from penstock.checkpoint.pending import Owe, StageCut, StageSnapshot
from penstock.connectors.sink import SinkCut, SinkPublisher
from penstock.graph.job_graph import Node
from penstock.graph.plan import Stage
from penstock.ids import CheckpointId
from penstock.job.inputs import Held, SourceInput, Taken
from penstock.job.stage_state import DurableState, FrozenState, StageState
from penstock.recovery.match import spell_key_type
from penstock.state.backends.base import StateRef
from penstock.state.savepoint_file import SavepointFile


@dataclass(frozen=True, slots=True)
class Aligned:
    """How long a stage's inputs waited for each other, and the most bytes that waited."""

    began: float
    ended: float
    bytes_held: int = 0


class Alignment:
    """Watches the inputs of a stage from the first barrier of a checkpoint to its last."""

    def __init__(self) -> None:
        self._checkpoint: CheckpointId | None = None
        self._began = 0.0
        self._bytes = 0

    def observe(self, held: Held | None, taken: Taken | None, now: float) -> CheckpointId | None:
        """Look at one decision; return the checkpoint whose first barrier has just come."""
        seen = held.checkpoint if held is not None else taken.barrier if taken else None
        if seen is None:
            return None
        is_first = seen != self._checkpoint
        if is_first:
            self._checkpoint, self._began, self._bytes = seen, now, 0
        if held is not None:
            self._bytes = max(self._bytes, sum(held.bytes.values()))
        return seen if is_first else None

    def take(self, checkpoint: CheckpointId) -> Aligned:
        """Return how the alignment went that ends now."""
        now = time.time()
        began = self._began if self._checkpoint == checkpoint else now
        return Aligned(began, now, self._bytes)


@dataclass(frozen=True, slots=True)
class CutTimes:
    """When a checkpoint was triggered, and how its barriers came in."""

    triggered: float
    aligned: Aligned


class StageSnapshots:
    """Makes the snapshots of one stage."""

    def __init__(
        self,
        stage: Stage,
        state: StageState,
        publishers: Mapping[int, SinkPublisher],
        source: SourceInput | None,
    ) -> None:
        self._stage = stage
        self._state = state
        self._publishers = publishers
        self._source = source
        self._key_type = ""
        if stage.head.kind.is_keyed:
            self._key_type = spell_key_type(stage)

    def cut(
        self,
        checkpoint: CheckpointId,
        times: CutTimes,
        *,
        ended: bool,
        rolls_all: bool,
        savepoint: Path | None,
    ) -> StageCut:
        """Freeze the stage at a barrier; called by its loop, short."""
        started = time.perf_counter()
        frozen = self._state.freeze()
        source = None
        if self._source is not None:
            source = SourceState(self._source.positions(), self._source.finished())
        sinks = {
            node: publisher.at_barrier(checkpoint, roll_all=rolls_all)
            for node, publisher in self._publishers.items()
        }
        sync_s = time.perf_counter() - started

        uids = {node.id: node.uid for node in self._stage.nodes}

        def persist(owe: Owe) -> StageSnapshot:
            begun = time.perf_counter()
            prepared: dict[int, SinkCut] = {}
            for node, pre_commit in sinks.items():
                cut = prepared[node] = pre_commit()
                owe(uids[node], [CommittableState(checkpoint, c) for c in cut.committables])
            exported: list[SavepointFile] = []
            durable = DurableState([], [])
            if savepoint is not None:
                exported = self._state.export(frozen, savepoint, self._key_type)
                new = [sum(f.size for f in exported)]
            else:
                durable = self._state.make_durable(frozen)
                new = durable.new_bytes
            keyed = durable.refs
            async_s = time.perf_counter() - begun
            stats = self._stats(times, (sync_s, async_s), new, keyed)
            operators = [
                self._operator(node, frozen, prepared, source, keyed, exported, stats, ended)
                for node in self._stage.nodes
            ]
            return StageSnapshot(operators, self._state.files(keyed), durable.handed_over)

        return StageCut(self._stage.id, checkpoint, self._state.files(frozen.keyed), persist)

    def _operator(
        self,
        node: Node,
        frozen: FrozenState,
        prepared: Mapping[int, SinkCut],
        source: SourceState | None,
        keyed: list[StateRef],
        exported: list[SavepointFile],
        stats: list[SubtaskStats],
        ended: bool,
    ) -> OperatorSnapshot:
        is_head = node is self._stage.head
        sink = None
        if (cut := prepared.get(node.id)) is not None:
            sink = SinkState([], cut.state)
        mine = [state.get(node.uid, b"") for state in frozen.operator_state]
        return OperatorSnapshot(
            uid=node.uid,
            name=node.name,
            kind=node.kind.value,
            parallelism=node.parallelism,
            max_parallelism=node.max_parallelism,
            version=frozen.version,
            backend=self._state.backend_name if is_head else None,
            key_type=self._key_type if is_head else "",
            keyed=keyed if is_head else [],
            operator_state=mine if any(mine) else [],
            source=source if is_head else None,
            sink=sink,
            ended=ended,
            stats=stats if is_head else [],
            savepoint=exported if is_head else [],
        )

    def _stats(
        self,
        times: CutTimes,
        seconds: tuple[float, float],
        new: list[int],
        keyed: list[StateRef],
    ) -> list[SubtaskStats]:
        now, aligned = time.time(), times.aligned
        return [
            SubtaskStats(
                start_delay_s=max(0.0, aligned.began - times.triggered),
                alignment_s=aligned.ended - aligned.began,
                sync_s=seconds[0],
                async_s=seconds[1],
                acknowledged=now,
                bytes_held=aligned.bytes_held if i == 0 else 0,
                new_bytes=new[i] if i < len(new) else 0,
                full_bytes=_size(keyed[i]) if i < len(keyed) else new[i] if i < len(new) else 0,
            )
            for i in range(self._stage.parallelism)
        ]


def _size(ref: StateRef) -> int:
    return sum(f.size for f in ref.files) + len(ref.inline or b"")
