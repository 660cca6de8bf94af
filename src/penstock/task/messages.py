"""What the driver tells a task, and what a task answers.

Both are msgpack. The instructions of a micro-batch, one for each stage that runs in it, are a
file that all its subtasks read; an acknowledgement is a task's only result, and names everything
the task staged.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from penstock.channel.segment import Segment, Slice
from penstock.common.event_time import MIN_WATERMARK
from penstock.common.metric_figures import StepFigures
from penstock.connectors.source import SplitRange
from penstock.state.backends.base import FileRef, LocalSnapshot, StateRef


class SegmentRead(msgspec.Struct, frozen=True, array_like=True):
    """The part of one segment file that a subtask has to read."""

    name: str
    slices: list[Slice]


class NextTimers(msgspec.Struct, frozen=True, array_like=True):
    """When the first timers of a subtask are due, None where it has none."""

    event: int | None = None
    processing: int | None = None


class GeneratorState(msgspec.Struct, frozen=True):
    """What travels of a watermark generator of the user's own; part of checkpoints."""

    kind: str
    """The name of its class."""
    fields: bytes
    """Pickled; the class itself is always that of the program."""


class GivenGenerator(msgspec.Struct, frozen=True, array_like=True):
    """A generator as a micro-batch goes on with it."""

    state: GeneratorState
    version: str = ""
    """The task attempt that left it so, whose worker may have it still; empty for none."""
    is_idle: bool = False
    """Whether it said so, and nothing else since."""


class UnitTime(msgspec.Struct, frozen=True, array_like=True):
    """A unit of a stream whose time is kept by itself, and how far it has come.

    A split of a source, or a subtask behind an exchange.
    """

    unit: str
    watermark: int
    is_idle: bool = False
    generator: GeneratorState | None = None
    """Of the user's own, behind the last record."""


class TimeOrder(msgspec.Struct, frozen=True):
    """What time it is in a stage during one micro-batch."""

    before: int = MIN_WATERMARK
    """The watermark while records are processed."""
    watermark: int = MIN_WATERMARK
    """Behind its last record: event-time timers up to here fire."""
    behind: dict[int, int] = {}
    """Per step that makes watermarks, the one that steps behind it see."""
    generators: dict[int, dict[str, GivenGenerator]] = {}
    """Per step with generators of the user's own and unit, what the driver has of them."""


class SubtaskWork(msgspec.Struct, frozen=True):
    """The input of one subtask in one micro-batch, and the state it starts from."""

    ranges: list[SplitRange] = []
    """Of an external source, in order."""
    segments: dict[int, list[SegmentRead]] = {}
    """Per input channel, in order."""
    state: StateRef | None = None
    previous: str | None = None
    """The task attempt that won the micro-batch before: its live functions may be reused."""
    operator_state: dict[str, bytes] = {}
    """By operator uid, the version the micro-batch before left; nothing in a job's first."""
    timers: NextTimers = NextTimers()
    """When its first timers are due, or before that."""
    restored: bool = False
    """Whether the job goes on from a checkpoint, also for an operator that has nothing in it."""

    @property
    def rows(self) -> int:
        """How many records wait for it in channels."""
        return sum(s.rows for reads in self.segments.values() for r in reads for s in r.slices)


def has_input(work: Sequence[SubtaskWork]) -> bool:
    """Tell whether any subtask has something to read."""
    return any(w.ranges or w.segments for w in work)


class NoticeKind(StrEnum):
    """What became of a checkpoint."""

    COMPLETE = "complete"
    ABORTED = "aborted"


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """Tells functions what became of a checkpoint."""

    kind: NoticeKind
    checkpoint: int


class Instruction(msgspec.Struct, frozen=True):
    """One try of one micro-batch of one stage."""

    job: str
    """Names the job among all that a worker may ever serve."""
    attempt: str
    stage: int
    batch: int
    try_number: int
    work: list[SubtaskWork]
    now: int = 0
    """Processing time of the try in milliseconds, one and the same for all its records."""
    end_of_input: bool = False
    key_slice: tuple[int, int] | None = None
    """In BATCH mode: take the i-th of n parts of each subtask's key groups."""
    checkpoint: int | None = None
    """The checkpoint that this micro-batch ends at."""
    passed: int = 0
    """The highest checkpoint this stage is past, also that it was restored from."""
    snapshot: bool = False
    """Ask the store for a local snapshot of the version before, when it has been opened."""
    notices: list[Notice] = []
    """Delivered in order before the first record; a retried task delivers them again."""
    time: TimeOrder = TimeOrder()
    keep_open: bool = False
    """Leave functions open at the end of input: notices are still to come."""
    close: bool = False
    """Close functions at the end of this micro-batch, though its input was not the last."""

    @property
    def snapshot_id(self) -> int:
        """The first checkpoint that what this micro-batch leaves behind can be part of.

        Never one that is past: a function that files its work under it, to act when it hears of
        that checkpoint, would act on what the checkpoint does not hold.
        """
        if self.checkpoint is not None:
            return self.checkpoint
        return max([self.passed, *(n.checkpoint for n in self.notices)]) + 1

    @property
    def closes_functions(self) -> bool:
        """Whether no later micro-batch needs the functions."""
        return self.close or (self.end_of_input and not self.keep_open)


class ChannelOutput(msgspec.Struct, frozen=True, array_like=True):
    """What a task wrote into one of its stage's output channels."""

    channel: int
    segment: Segment


class Home(msgspec.Struct, frozen=True, array_like=True):
    """Where a subtask ran: next to its state, if it ran there before."""

    host: str
    directory: str
    """That host's directory of the job's local state."""
    rebuilt: bool = False
    """Whether its state had to be built there out of all its files."""

    def is_same(self, other: Home) -> bool:
        """Whether the two are one place."""
        return (self.host, self.directory) == (other.host, other.directory)


class Acknowledgement(msgspec.Struct, frozen=True):
    """What one task attempt did; nothing of it counts until the driver publishes it."""

    subtask: int
    name: str
    """Unique per task attempt; part of the name of everything staged."""
    records_in: int = 0
    records_out: int = 0
    outputs: list[ChannelOutput] = []
    sinks: dict[int, bytes] = {}
    """Per sink operator (node id), what its writer staged."""
    state: FileRef | bytes | None = None
    operator_state: dict[str, bytes] = {}
    """By operator uid, all of what its function keeps: the version this micro-batch leaves."""
    timers: NextTimers = NextTimers()
    """When the first timers of its keys are due."""
    times: dict[int, list[UnitTime]] = {}
    """Per step that makes watermarks, what it has seen."""
    snapshot: LocalSnapshot | None = None
    """What the instruction asked for; None if the backend needs none."""
    counters: dict[str, dict[str, int]] = {}
    """Per operator uid, what its functions counted."""
    figures: dict[str, StepFigures] = {}
    """Per operator uid, what else its functions measured."""
    changed_fields: dict[str, list[str]] = {}
    """Per operator name, plain fields that changed since `open`."""
    phases: dict[str, float] = {}
    """Seconds spent, by what for."""
    home: Home | None = None
    """None if no task ran."""
    failure: bytes | None = None
    """A pickled PenstockError: the task came to an end that a retry would not change."""


encode = msgspec.msgpack.encode
decode_instruction = msgspec.msgpack.Decoder(Instruction).decode
decode_instructions = msgspec.msgpack.Decoder(list[Instruction]).decode
decode_acknowledgement = msgspec.msgpack.Decoder(Acknowledgement).decode
