"""The messages between driver and tasks: instructions and acknowledgements.

Both are msgpack. All subtasks of a micro-batch get its instructions, one for each stage that runs
in it; an acknowledgement is a task's only result, and names everything the task staged.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from penstock.channel.segment import Segment, Slice
from penstock.common.event_time import MIN_WATERMARK
from penstock.common.metric_values import StepMetrics
from penstock.connectors.contracts.source import SplitRange
from penstock.state.backends.refs import FileRef, LocalSnapshot, StateRef


class SegmentRead(msgspec.Struct, frozen=True, array_like=True):
    """The slices of one segment file that a subtask reads."""

    name: str
    slices: list[Slice]


class NextTimers(msgspec.Struct, frozen=True, array_like=True):
    """When the first timers of a subtask are due, None if it has none."""

    event: int | None = None
    processing: int | None = None


class GeneratorState(msgspec.Struct, frozen=True):
    """The fields of a user-defined watermark generator; part of checkpoints."""

    kind: str
    """The name of its class."""
    fields: bytes
    """Pickled; the class is always that of the program."""


class GeneratorInput(msgspec.Struct, frozen=True, array_like=True):
    """A watermark generator that a micro-batch continues with."""

    state: GeneratorState
    version: str = ""
    """The task attempt that left it so, whose worker may still have it; empty for none."""
    is_idle: bool = False
    """Whether it marked its output idle."""


class SplitWatermark(msgspec.Struct, frozen=True, array_like=True):
    """The watermark of a split: a split of a source, or a subtask after an exchange."""

    split: str
    watermark: int
    is_idle: bool = False
    generator: GeneratorState | None = None
    """The user-defined generator after the last record."""


class MicroBatchTime(msgspec.Struct, frozen=True):
    """The watermarks of a stage during one micro-batch."""

    watermark_before: int = MIN_WATERMARK
    """The watermark while records are processed."""
    watermark_after: int = MIN_WATERMARK
    """The watermark after the last record: event-time timers up to it fire."""
    downstream: dict[int, int] = {}
    """Per step that generates watermarks, the one that the steps after it see."""
    generators: dict[int, dict[str, GeneratorInput]] = {}
    """Per step and split, the user-defined generator to continue with."""


class SubtaskWork(msgspec.Struct, frozen=True):
    """The input of one subtask in one micro-batch, and the state it starts from."""

    ranges: list[SplitRange] = []
    """Of an external source, in order."""
    segments: dict[int, list[SegmentRead]] = {}
    """Per input channel, in order."""
    state: StateRef | None = None
    previous: str | None = None
    """The task attempt that the last micro-batch published: its open functions may be reused."""
    operator_state: dict[str, bytes] = {}
    """By operator uid, the version after the last micro-batch; empty in a job's first."""
    timers: NextTimers = NextTimers()
    """When its first timers are due, or an earlier time."""
    restored: bool = False
    """Whether the job was restored, also for an operator without state in the checkpoint."""
    unneeded: list[str] = []
    """State files of its host that nothing needs any more, if hosts share no directory."""

    @property
    def rows(self) -> int:
        """How many records it reads from channels."""
        return sum(s.rows for reads in self.segments.values() for r in reads for s in r.slices)

    @property
    def size(self) -> int:
        """How many bytes it reads from channels."""
        return sum(s.length for reads in self.segments.values() for r in reads for s in r.slices)


def has_input(work: Sequence[SubtaskWork]) -> bool:
    """Return whether any subtask has something to read."""
    return any(w.ranges or w.segments for w in work)


class NotificationKind(StrEnum):
    """The outcome of a checkpoint."""

    COMPLETE = "complete"
    ABORTED = "aborted"


class CheckpointNotification(msgspec.Struct, frozen=True, array_like=True):
    """Notifies functions of the outcome of a checkpoint."""

    kind: NotificationKind
    checkpoint: int


class Instruction(msgspec.Struct, frozen=True):
    """One try of one micro-batch of one stage."""

    job: str
    """Identifies the job among all that a worker may ever run."""
    attempt: str
    stage: int
    batch: int
    try_number: int
    work: list[SubtaskWork]
    now: int = 0
    """Processing time at the start of the try, in milliseconds."""
    end_of_input: bool = False
    key_slice: tuple[int, int] | None = None
    """In BATCH mode: process the i-th of n parts of each subtask's key groups."""
    checkpoint: int | None = None
    """The checkpoint whose barrier ends this micro-batch."""
    passed: int = 0
    """The highest checkpoint whose barrier this stage has passed, or that it was restored from."""
    snapshot: bool = False
    """Take a local snapshot of the last published version when the state has been opened."""
    notifications: list[CheckpointNotification] = []
    """Delivered in order before the first record; a retried task delivers them again."""
    time: MicroBatchTime = MicroBatchTime()
    keep_open: bool = False
    """Leave functions open at the end of input: more notifications will follow."""
    close: bool = False
    """Close functions after this micro-batch, though its input was not the last."""

    @property
    def snapshot_id(self) -> int:
        """The first checkpoint that can include the state after this micro-batch.

        Never one whose barrier has passed: a function that files its work under this id, to act
        when the checkpoint completes, would act on work that the checkpoint does not include.
        """
        if self.checkpoint is not None:
            return self.checkpoint
        return max([self.passed, *(n.checkpoint for n in self.notifications)]) + 1

    @property
    def closes_functions(self) -> bool:
        """Whether no later micro-batch needs the functions."""
        return self.close or (self.end_of_input and not self.keep_open)


class ChannelOutput(msgspec.Struct, frozen=True, array_like=True):
    """What a task wrote into one of its stage's output channels."""

    channel: int
    segment: Segment


class SubtaskLocation(msgspec.Struct, frozen=True, array_like=True):
    """Where a subtask ran."""

    host: str
    directory: str
    """That host's directory of the job's local state."""
    rebuilt: bool = False
    """Whether its state had to be rebuilt there from the shared files."""
    executor: str = ""
    """The id of the executor; empty if it is not known."""

    def is_same(self, other: SubtaskLocation) -> bool:
        """Return whether both have the same local state."""
        return (self.host, self.directory) == (other.host, other.directory)


class RelayedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of a sink that a task has put into the store."""

    uid: str
    """Of the sink."""
    directory: str
    """The name of a field of `SinkDirs`."""
    name: str
    """Relative to that directory."""
    size: int


class OperatorCounts(msgspec.Struct, frozen=True, array_like=True):
    """The records that one operator of a chain took and emitted in one task."""

    records_in: int = 0
    records_out: int = 0
    """To the main output and to side outputs, each record once."""


class Acknowledgement(msgspec.Struct, frozen=True):
    """The result of one task attempt in a micro-batch; unrelated to Flink's AcknowledgeCheckpoint.

    Nothing of it counts until the driver publishes the micro-batch.
    """

    subtask: int
    name: str
    """Unique per task attempt; part of the name of everything staged."""
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    """Of the channels it read, encoded."""
    bytes_out: int = 0
    """Of the channels it wrote, encoded."""
    operators: dict[str, OperatorCounts] = {}
    """By operator uid."""
    event_time_lag: int | None = None
    """How late a source emitted its last record, in milliseconds; None if it has no event time."""
    rocksdb: dict[str, int] = {}
    """RocksDB's own metrics of the head."""
    outputs: list[ChannelOutput] = []
    sinks: dict[int, bytes] = {}
    """Per sink operator (node id), what its writer staged."""
    relayed: list[RelayedFile] = []
    """The files of sinks that the driver has to fetch, if hosts share no directory."""
    state: FileRef | bytes | None = None
    operator_state: dict[str, bytes] = {}
    """By operator uid, all its operator state after this micro-batch."""
    timers: NextTimers = NextTimers()
    times: dict[int, list[SplitWatermark]] = {}
    """Per step that generates watermarks, those of the splits it has seen."""
    snapshot: LocalSnapshot | None = None
    """The local snapshot that was requested; None if the backend needs none."""
    counters: dict[str, dict[str, int]] = {}
    """Per operator uid, what its functions counted."""
    figures: dict[str, StepMetrics] = {}
    """Per operator uid, the other metrics of its functions."""
    changed_fields: dict[str, list[str]] = {}
    """Per operator name, plain fields that changed since `open`."""
    phases: dict[str, float] = {}
    """Seconds spent in each phase of the task."""
    location: SubtaskLocation | None = None
    """None if no task ran."""
    failure: bytes | None = None
    """A pickled PenstockError that a retry would not change."""


encode = msgspec.msgpack.encode
decode_instructions = msgspec.msgpack.Decoder(list[Instruction]).decode
decode_acknowledgement = msgspec.msgpack.Decoder(Acknowledgement).decode
