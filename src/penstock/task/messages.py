"""What the driver tells a task, and what a task answers.

Both are msgpack. An instruction is a file all subtasks of a micro-batch read; an
acknowledgement is a task's only result, and names everything the task staged.
"""

from __future__ import annotations

import msgspec

from penstock.channel.segment import Segment, Slice
from penstock.connectors.source import SplitRange
from penstock.state.backends.base import FileRef, StateRef


class SegmentRead(msgspec.Struct, frozen=True, array_like=True):
    """The part of one segment file that a subtask has to read."""

    name: str
    slices: list[Slice]


class SubtaskWork(msgspec.Struct, frozen=True):
    """The input of one subtask in one micro-batch, and the state it starts from."""

    ranges: list[SplitRange] = []
    """Of an external source, in order."""
    segments: dict[int, list[SegmentRead]] = {}
    """Per input channel, in order."""
    state: StateRef | None = None
    previous: str | None = None
    """The task attempt that won the micro-batch before: its live functions may be reused."""


class Instruction(msgspec.Struct, frozen=True):
    """One try of one micro-batch of one stage."""

    job: str
    """Names the job among all that a worker may ever serve."""
    attempt: str
    stage: int
    batch: int
    try_number: int
    work: list[SubtaskWork]
    end_of_input: bool = False
    key_slice: tuple[int, int] | None = None
    """In BATCH mode: take the i-th of n parts of each subtask's key groups."""


class ChannelOutput(msgspec.Struct, frozen=True, array_like=True):
    """What a task wrote into one of its stage's output channels."""

    channel: int
    segment: Segment


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
    counters: dict[str, dict[str, int]] = {}
    """Per operator uid, what its functions counted."""
    changed_fields: dict[str, list[str]] = {}
    """Per operator name, plain fields that changed since `open`."""
    phases: dict[str, float] = {}
    """Seconds spent, by what for."""
    failure: bytes | None = None
    """A pickled PenstockError: the task came to an end that a retry would not change."""


encode = msgspec.msgpack.encode
decode_instruction = msgspec.msgpack.Decoder(Instruction).decode
decode_acknowledgement = msgspec.msgpack.Decoder(Acknowledgement).decode
