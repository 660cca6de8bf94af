"""What the head of a stage works with in one task, and how it feeds records to the chain."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa

from penstock.channel.segment import SegmentWriter, SliceWriter
from penstock.common.event_time import NO_TIMESTAMP
from penstock.connectors.contracts.sink import SinkWriter
from penstock.connectors.contracts.source import Chunk
from penstock.graph.plan import Channel
from penstock.graph.transformation import OperatorKind
from penstock.state.backends.refs import FileRef, LocalSnapshot, StagedName
from penstock.state.keys import KeyCodec
from penstock.task.heads.inputs import InputSlice, input_slices
from penstock.task.messages import Instruction, NextTimers
from penstock.task.operators.chain import OperatorChain
from penstock.task.operators.functions import OperatorFunctions
from penstock.task.operators.steps import Push
from penstock.task.partitioning.partitioners import (
    PartitionerContext,
    StreamPartitioner,
    partitioner_for,
)
from penstock.task.shuffle.records import ShuffleMessages, ShuffleSliceWriter
from penstock.task.stage_task import StageTask
from penstock.task.step_names import producer_name
from penstock.task.time.timer_service import RecordTime
from penstock.task.time.timestamps import ChainTimeService

STRIDE = 1 << 14
"""Records between two checks of how much the partitioners hold."""

_FORWARDING = (OperatorKind.SOURCE, OperatorKind.DECOUPLE, OperatorKind.NATIVE)
"""Heads that forward every record unchanged."""


class Phases:
    """Measures how long each phase of a task takes."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def mark(self, phase: str) -> None:
        """Add the time since the last mark to a phase."""
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now


@dataclass(slots=True)
class HeadResult:
    """What a head adds to the acknowledgement of its task."""

    records_in: int = 0
    state: FileRef | bytes | None = None
    """The staged changelog of the keyed state."""
    timers: NextTimers = field(default_factory=NextTimers)
    snapshot: LocalSnapshot | None = None
    rebuilt: bool = False
    """Whether the state had to be rebuilt on this host."""
    rocksdb: dict[str, int] = field(default_factory=dict)
    """RocksDB's own metrics."""
    event_time_lag: int | None = None
    """How late a source emitted its last record, in milliseconds."""


@dataclass(eq=False)
class HeadContext:
    """One task as the head of its stage sees it."""

    task: StageTask
    instruction: Instruction
    subtask: int
    staged: StagedName
    functions: OperatorFunctions
    writers: Mapping[int, SinkWriter]
    batches: Iterator[pa.RecordBatch] | None
    """What Spark itself read, for a head that leaves reading to it."""
    shuffle: ShuffleMessages
    phases: Phases
    result: HeadResult = field(default_factory=HeadResult)

    def __post_init__(self) -> None:
        self.stage = stage = self.task.stage
        self.node = stage.head
        self.work = self.instruction.work[self.subtask]
        time = self.instruction.time
        self.record_time = RecordTime(time.watermark_before, self.instruction.now)
        self.partitioners = [self._partitioner(channel) for channel in stage.outputs]
        generators, split = self.functions.generators, f"#{self.subtask}"
        self.time = ChainTimeService(stage, self.record_time, time, generators, split)
        self.chain = OperatorChain(stage, self.partitioners, self.writers, self.time)

    def _partitioner(self, channel: Channel) -> StreamPartitioner:
        writer: SliceWriter
        if channel.id in self.task.internal_channels:
            writer = ShuffleSliceWriter(self.shuffle.output, channel)
        else:
            place = self.task.layout.channel(channel.id) / f"{self.staged}.arrow"
            writer = SegmentWriter(place, channel.consumer_parallelism)
        source = next(n for n in self.stage.nodes if n.id == channel.source_node)
        step = producer_name(self.stage, source)
        return partitioner_for(
            PartitionerContext(channel, writer, step, self.record_time, self.subtask)
        )

    def start_functions(self) -> None:
        """Open the functions if they are new; called once, before the first record."""
        self.functions.start(self.work, self.instruction.notifications)

    @property
    def key_codec(self) -> KeyCodec:
        """The codec of the stage's keys."""
        assert self.functions.states is not None
        return self.functions.states.codec

    def slices(self, *, broadcast: bool = False) -> Iterator[InputSlice]:
        """Yield the input from channels: that of the broadcast side, or all other."""
        has_broadcast = self.node.kind.has_broadcast_side
        channels = [c for c in self.stage.inputs if (has_broadcast and c.input == 1) == broadcast]
        return input_slices(channels, self.task.layout, self.work, self.shuffle.input)

    @property
    def forwards_columns(self) -> bool:
        """Whether nothing lies between the input and the exchange: columns stay columns."""
        return (
            len(self.stage.nodes) == 1
            and len(self.partitioners) == 1
            and self.node.kind in _FORWARDING
            and not self.node.has_time
        )

    def forward(self, chunk: Chunk) -> None:
        """Hand many records to the only partitioner."""
        self.result.records_in += len(chunk)
        self.partitioners[0].push_many(chunk)

    def flush_if_full(self) -> None:
        """Let the partitioners write what they hold if it is a chunk."""
        for partitioner in self.partitioners:
            partitioner.flush_if_full()

    def push_slice(self, part: InputSlice, push: Push) -> None:
        """Push the records of a slice through the chain."""
        times = part.segment.times
        self.push_all(part.values(), push, None if times is None else times.to_numpy().tolist())

    def push_all(self, records: list[Any], push: Push, times: list[int] | None = None) -> None:
        """Push records through the chain, each with its event time if they have some."""
        self.result.records_in += len(records)
        if times is None:
            for start in range(0, len(records), STRIDE):
                for record in records[start : start + STRIDE]:
                    push(record)
                self.flush_if_full()
            return
        record_time = self.record_time
        timed = zip(times, records, strict=True)
        for _ in range(0, len(records), STRIDE):
            for record_time.timestamp, record in islice(timed, STRIDE):
                push(record)
            self.flush_if_full()
        record_time.timestamp = NO_TIMESTAMP
