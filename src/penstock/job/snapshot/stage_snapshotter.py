"""The part of a checkpoint that one stage contributes: frozen at the barrier, durable later."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from penstock.checkpoint.coordinator import pending_checkpoint
from penstock.checkpoint.storage import metadata
from penstock.common.storage_url import Location
from penstock.connectors.contracts.sink import SinkPublisher, SinkSnapshot
from penstock.graph.job_graph import Node
from penstock.graph.plan import Stage
from penstock.ids import ChannelId, CheckpointId
from penstock.job.input.in_flight_data_collector import InFlightDataCollector
from penstock.job.input.source_input import SourceInput
from penstock.job.input.stage_input import BlockedInput, MicroBatchInput
from penstock.job.snapshot.channel_state_writer import ChannelStateWriter, in_flight_bytes
from penstock.job.snapshot.source_files import SourceFiles
from penstock.job.snapshot.stage_state import DurableState, FrozenState, StageState
from penstock.job.time.stage_time import StageTime
from penstock.state.backends.refs import StateRef


@dataclass(frozen=True, slots=True)
class AlignmentStats:
    """The duration of an alignment, and the most bytes that were blocked in each channel."""

    started: float
    ended: float
    blocked_bytes: Mapping[ChannelId, int] = field(default_factory=dict)


class AlignmentTracker:
    """Observes the inputs of a stage from the first barrier of a checkpoint to the last."""

    def __init__(self) -> None:
        self._checkpoint: CheckpointId | None = None
        self._started = 0.0
        self._bytes: dict[ChannelId, int] = {}

    def observe(
        self, blocked: BlockedInput | None, batch: MicroBatchInput | None, now: float
    ) -> CheckpointId | None:
        """Observe one poll; return the checkpoint whose first barrier has just arrived."""
        seen = blocked.checkpoint if blocked is not None else batch.barrier if batch else None
        if seen is None:
            return None
        is_first = seen != self._checkpoint
        if is_first:
            self._checkpoint, self._started, self._bytes = seen, now, {}
        if blocked is not None:
            for channel, size in blocked.bytes.items():
                self._bytes[channel] = max(size, self._bytes.get(channel, 0))
        return seen if is_first else None

    def stats(self, checkpoint: CheckpointId) -> AlignmentStats:
        """Return the figures of the alignment that ends now."""
        now = time.time()
        if self._checkpoint != checkpoint:
            return AlignmentStats(now, now)
        return AlignmentStats(self._started, now, dict(self._bytes))


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """What the region loop knows of the barrier at which a stage is to be frozen."""

    checkpoint: CheckpointId
    triggered: float
    alignment: AlignmentStats
    ended: bool
    """Whether all input is before the barrier."""
    flush: bool
    """Whether sinks must leave nothing unfinished."""
    savepoint: Location | None
    """Where state goes in the canonical format; None for a checkpoint."""
    channel_state: InFlightDataCollector | None = None
    """The in-flight data, if the barrier overtakes records."""


@dataclass(frozen=True, slots=True)
class _FrozenStage:
    """A stage as the synchronous phase has fixed it."""

    request: SnapshotRequest
    state: FrozenState
    time: Mapping[str, metadata.OperatorTime]
    """By operator uid."""
    source: metadata.SourceState | None
    pre_commits: Mapping[int, Callable[[], SinkSnapshot]]
    """By node id of the sinks."""
    sync_s: float


@dataclass(slots=True)
class StageSnapshotter:
    """Takes the snapshots of one stage."""

    stage: Stage
    state: StageState
    time: StageTime
    publishers: Mapping[int, SinkPublisher]
    """By node id of the sinks."""
    source: SourceInput | None
    channels: ChannelStateWriter
    source_files: SourceFiles

    def freeze(self, request: SnapshotRequest) -> pending_checkpoint.FrozenSnapshot:
        """Freeze the stage at a barrier: the synchronous phase, in the region loop, short."""
        started = time.perf_counter()
        state = self.state.freeze()
        source = None if self.source is None else self.source.snapshot()
        pre_commits = {
            node: publisher.at_barrier(request.checkpoint, flush=request.flush)
            for node, publisher in self.publishers.items()
        }
        sync_s = time.perf_counter() - started
        self.channels.record_blocked(request.checkpoint, request.alignment.blocked_bytes)
        frozen = _FrozenStage(request, state, self.time.snapshot(), source, pre_commits, sync_s)
        return pending_checkpoint.FrozenSnapshot(
            self.stage.id, request.checkpoint, state.files, partial(self._run_async_phase, frozen)
        )

    def _run_async_phase(
        self, frozen: _FrozenStage, add_committables: pending_checkpoint.AddCommittables
    ) -> pending_checkpoint.StageSnapshot:
        """Make a frozen stage durable; runs in the stage's checkpoint executor."""
        try:
            return self._make_durable(frozen, add_committables)
        finally:
            # Also on failure: the region loop may then delete the files of consumed entries.
            if frozen.request.channel_state is not None:
                frozen.request.channel_state.release()

    def _make_durable(
        self, frozen: _FrozenStage, add_committables: pending_checkpoint.AddCommittables
    ) -> pending_checkpoint.StageSnapshot:
        started, request = time.perf_counter(), frozen.request
        sinks = self._pre_commit(frozen, add_committables)
        exported, durable = [], DurableState([], [])
        if request.savepoint is not None:
            exported = self.state.export(frozen.state, request.savepoint)
            durable.new_bytes.append(sum(f.size for f in exported))
        else:
            durable = self.state.make_durable(frozen.state)
        source = frozen.source and self.source_files.keep(
            frozen.source, request.savepoint, self.channels.directory(request.checkpoint)
        )
        in_flight = self.channels.keep(request.checkpoint, request.channel_state)
        async_s = time.perf_counter() - started
        # State, source and statistics of the stage are stored with its first operator.
        operators = {n.uid: self._operator(n, frozen, sinks.get(n.id)) for n in self.stage.nodes}
        head = self.stage.head.uid
        operators[head] = replace(
            operators[head],
            backend=self.state.backend_name,
            key_type=self.state.key_type,
            keyed=durable.refs,
            source=source,
            stats=[
                self._stats(frozen, i, durable, in_flight_bytes(in_flight, i), async_s)
                for i in range(self.stage.parallelism)
            ],
            savepoint=exported,
            in_flight=in_flight,
            channels=self.channels.stats(request.alignment.blocked_bytes, in_flight),
        )
        frozen.state.files.replace(self.state.files(durable.refs))
        return pending_checkpoint.StageSnapshot(list(operators.values()), frozen.state.files)

    def _operator(
        self, node: Node, frozen: _FrozenStage, sink: SinkSnapshot | None
    ) -> metadata.OperatorSnapshot:
        states = [state.get(node.uid, b"") for state in frozen.state.operator_state]
        return metadata.OperatorSnapshot(
            uid=node.uid,
            name=node.name,
            kind=node.kind.value,
            parallelism=node.parallelism,
            max_parallelism=node.max_parallelism,
            version=frozen.state.version,
            operator_state=states if any(states) else [],
            sink=None if sink is None else metadata.SinkState([], sink.state),
            ended=frozen.request.ended,
            time=frozen.time.get(node.uid, metadata.OperatorTime()),
        )

    def _pre_commit(
        self, frozen: _FrozenStage, add_committables: pending_checkpoint.AddCommittables
    ) -> dict[int, SinkSnapshot]:
        """Pre-commit all sinks; their committables must be committed even if this fails later."""
        uids = {node.id: node.uid for node in self.stage.nodes}
        sinks = {}
        for node, pre_commit in frozen.pre_commits.items():
            sink = sinks[node] = pre_commit()
            checkpoint = frozen.request.checkpoint
            add_committables(
                uids[node], [metadata.CommittableState(checkpoint, c) for c in sink.committables]
            )
        return sinks

    def _stats(
        self,
        frozen: _FrozenStage,
        subtask: int,
        durable: DurableState,
        in_flight: int,
        async_s: float,
    ) -> metadata.SubtaskStats:
        request, alignment = frozen.request, frozen.request.alignment
        new = durable.new_bytes[subtask] if subtask < len(durable.new_bytes) else 0
        is_first = subtask == 0
        return metadata.SubtaskStats(
            start_delay_s=max(0.0, alignment.started - request.triggered),
            alignment_s=max(0.0, alignment.ended - alignment.started),
            sync_s=frozen.sync_s,
            async_s=async_s,
            acknowledged=time.time(),
            blocked_bytes=sum(alignment.blocked_bytes.values()) if is_first else 0,
            new_bytes=new,
            full_bytes=_size(durable.refs[subtask]) if subtask < len(durable.refs) else new,
            in_flight_bytes=in_flight,
            unaligned=request.channel_state is not None,
        )


def _size(ref: StateRef) -> int:
    return sum(f.size for f in ref.files) + len(ref.inline or b"")
