"""What a stage puts into a checkpoint: frozen at the barrier, made durable behind it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.checkpoint.metadata import (
    ChannelState,
    ChannelStats,
    CommittableState,
    OperatorSnapshot,
    OperatorTime,
    SinkState,
    SourceState,
    SubtaskStats,
)
from penstock.checkpoint.pending import Owe, StageCut, StageSnapshot
from penstock.connectors.sink import SinkCut, SinkPublisher
from penstock.graph.job_graph import Node
from penstock.graph.plan import Stage
from penstock.ids import ChannelId, CheckpointId
from penstock.job.channel_snapshots import ChannelSnapshots, bytes_of
from penstock.job.inputs import Held, SourceInput, Taken
from penstock.job.recording import Recording
from penstock.job.source_files import SourceFiles
from penstock.job.stage_state import DurableState, FrozenState, StageState
from penstock.recovery.match import spell_key_type
from penstock.state.backends.base import StateRef
from penstock.state.savepoint_file import SavepointFile


@dataclass(frozen=True, slots=True)
class Aligned:
    """How long a stage's inputs waited for each other, and the most bytes that waited in each."""

    began: float
    ended: float
    bytes_held: Mapping[ChannelId, int] = field(default_factory=dict)


class Alignment:
    """Watches the inputs of a stage from the first barrier of a checkpoint to its last."""

    def __init__(self) -> None:
        self._checkpoint: CheckpointId | None = None
        self._began = 0.0
        self._bytes: dict[ChannelId, int] = {}

    def observe(self, held: Held | None, taken: Taken | None, now: float) -> CheckpointId | None:
        """Look at one decision; return the checkpoint whose first barrier has just come."""
        seen = held.checkpoint if held is not None else taken.barrier if taken else None
        if seen is None:
            return None
        is_first = seen != self._checkpoint
        if is_first:
            self._checkpoint, self._began, self._bytes = seen, now, {}
        if held is not None:
            for channel, size in held.bytes.items():
                self._bytes[channel] = max(size, self._bytes.get(channel, 0))
        return seen if is_first else None

    def take(self, checkpoint: CheckpointId) -> Aligned:
        """Return how the alignment went that ends now."""
        now = time.time()
        if self._checkpoint != checkpoint:
            return Aligned(now, now)
        return Aligned(self._began, now, dict(self._bytes))


@dataclass(frozen=True, slots=True)
class CutOrder:
    """What a stage's loop says of the cut it is at."""

    checkpoint: CheckpointId
    triggered: float
    aligned: Aligned
    ended: bool
    """Whether all input is before the cut."""
    rolls_all: bool
    """Whether sinks must leave nothing unfinished."""
    savepoint: Path | None
    """Where state goes in the canonical format; None for a checkpoint."""
    recording: Recording | None = None
    """What the barrier has overtaken, if it has."""
    time: Mapping[str, OperatorTime] = field(default_factory=dict)
    """By operator uid."""


@dataclass(frozen=True, slots=True)
class _Durable:
    """Everything of a stage that a checkpoint will hold, safe on disk."""

    frozen: FrozenState
    keyed: list[StateRef]
    exported: list[SavepointFile]
    sinks: Mapping[int, SinkCut]
    source: SourceState | None
    in_flight: list[ChannelState]
    stats: list[SubtaskStats]
    channels: list[ChannelStats]


class StageSnapshots:
    """Makes the snapshots of one stage."""

    def __init__(
        self,
        stage: Stage,
        state: StageState,
        publishers: Mapping[int, SinkPublisher],
        source: SourceInput | None,
        channels: ChannelSnapshots,
        job_dir: Path,
    ) -> None:
        self._stage = stage
        self._state = state
        self._publishers = publishers
        self._source = source
        self._channels = channels
        self._source_files = SourceFiles(stage.head.uid, job_dir)
        self._key_type = ""
        if stage.head.kind.is_keyed:
            self._key_type = spell_key_type(stage)

    def cut(self, order: CutOrder) -> StageCut:
        """Freeze the stage at a barrier; called by its loop, short."""
        started = time.perf_counter()
        frozen = self._state.freeze()
        source = None
        if self._source is not None:
            source = self._source.snapshot()
        sinks = {
            node: publisher.at_barrier(order.checkpoint, roll_all=order.rolls_all)
            for node, publisher in self._publishers.items()
        }
        sync_s = time.perf_counter() - started
        self._channels.tell_held(order.checkpoint, order.aligned.bytes_held)

        uids = {node.id: node.uid for node in self._stage.nodes}

        def persist(owe: Owe) -> StageSnapshot:
            try:
                return make_durable(owe)
            finally:
                if order.recording is not None:
                    order.recording.end()

        def make_durable(owe: Owe) -> StageSnapshot:
            begun = time.perf_counter()
            prepared: dict[int, SinkCut] = {}
            for node, pre_commit in sinks.items():
                cut = prepared[node] = pre_commit()
                owe(uids[node], [CommittableState(order.checkpoint, c) for c in cut.committables])
            exported: list[SavepointFile] = []
            durable = DurableState([], [])
            if order.savepoint is not None:
                exported = self._state.export(frozen, order.savepoint, self._key_type)
                new = [sum(f.size for f in exported)]
            else:
                durable = self._state.make_durable(frozen)
                new = durable.new_bytes
            try:
                kept = source and self._source_files.keep(source, order.savepoint)
                in_flight = self._channels.keep(order.checkpoint, order.recording)
            except BaseException:
                durable.handed_over()
                raise
            seconds = sync_s, time.perf_counter() - begun
            saved = _Durable(
                frozen=frozen,
                keyed=durable.refs,
                exported=exported,
                sinks=prepared,
                source=kept,
                in_flight=in_flight,
                stats=self._stats(order, seconds, new, durable.refs, in_flight),
                channels=self._channels.stats(order.aligned.bytes_held, in_flight),
            )
            operators = [self._operator(node, saved, order) for node in self._stage.nodes]
            return StageSnapshot(operators, self._state.files(saved.keyed), durable.handed_over)

        files = self._state.files(frozen.keyed)
        return StageCut(self._stage.id, order.checkpoint, files, persist)

    def _operator(self, node: Node, saved: _Durable, order: CutOrder) -> OperatorSnapshot:
        is_head = node is self._stage.head
        sink = None
        if (cut := saved.sinks.get(node.id)) is not None:
            sink = SinkState([], cut.state)
        mine = [state.get(node.uid, b"") for state in saved.frozen.operator_state]
        return OperatorSnapshot(
            uid=node.uid,
            name=node.name,
            kind=node.kind.value,
            parallelism=node.parallelism,
            max_parallelism=node.max_parallelism,
            version=saved.frozen.version,
            backend=self._state.backend_name if is_head else None,
            key_type=self._key_type if is_head else "",
            keyed=saved.keyed if is_head else [],
            operator_state=mine if any(mine) else [],
            source=saved.source if is_head else None,
            sink=sink,
            ended=order.ended,
            stats=saved.stats if is_head else [],
            savepoint=saved.exported if is_head else [],
            in_flight=saved.in_flight if is_head else [],
            channels=saved.channels if is_head else [],
            time=order.time.get(node.uid, OperatorTime()),
        )

    def _stats(
        self,
        order: CutOrder,
        seconds: tuple[float, float],
        new: list[int],
        keyed: list[StateRef],
        in_flight: list[ChannelState],
    ) -> list[SubtaskStats]:
        now, aligned = time.time(), order.aligned
        held = sum(aligned.bytes_held.values())
        return [
            SubtaskStats(
                start_delay_s=max(0.0, aligned.began - order.triggered),
                alignment_s=aligned.ended - aligned.began,
                sync_s=seconds[0],
                async_s=seconds[1],
                acknowledged=now,
                bytes_held=held if i == 0 else 0,
                new_bytes=new[i] if i < len(new) else 0,
                full_bytes=_size(keyed[i]) if i < len(keyed) else new[i] if i < len(new) else 0,
                in_flight_bytes=bytes_of(in_flight, i),
                unaligned=order.recording is not None,
            )
            for i in range(self._stage.parallelism)
        ]


def _size(ref: StateRef) -> int:
    return sum(f.size for f in ref.files) + len(ref.inline or b"")
