"""What a checkpoint is, written down: enough to restore a job from it alone.

These structs are a file format. A field may be added with a default; none may be renamed,
removed or given another meaning without a new version in `metadata_codec`.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from penstock.channel.segment import Segment
from penstock.common.event_time import MIN_WATERMARK
from penstock.connectors.kept_files import KeptFiles
from penstock.ids import OperatorUid
from penstock.state.backends.base import FileRef, StateRef
from penstock.state.savepoint_file import SavepointFile
from penstock.task.layout import file_name
from penstock.task.messages import GeneratorState

__all__ = [
    "JOB_DIRECTORY",
    "LIFE",
    "ChannelState",
    "ChannelStats",
    "CheckpointMetadata",
    "CommittableState",
    "InputClock",
    "OperatorSnapshot",
    "OperatorTime",
    "SinkState",
    "SourceState",
    "SubtaskStats",
    "files_of",
    "full_bytes",
    "in_flight_file",
    "new_bytes",
]


LIFE = "life"
"""Property: the life of its job that a snapshot was taken in."""
JOB_DIRECTORY = "job-directory"
"""Property of a savepoint: where its job kept a copy of the metadata."""


class CommittableState(Struct, frozen=True):
    """What a sink prepared at the barrier of a checkpoint and nobody knew to be committed."""

    checkpoint: int
    data: bytes


class SinkState(Struct, frozen=True):
    """A sink at the cut: all it owes up to this checkpoint, and what it has not rolled yet."""

    committables: list[CommittableState]
    state: list[bytes]


class SourceState(Struct, frozen=True):
    """A source at the cut: the position of every split; nothing follows if it has finished."""

    positions: dict[str, int]
    finished: bool
    memory: bytes = b""
    """What else its enumerator must know."""
    kept: KeptFiles | None = None
    """Files of its own that go with it."""


class SubtaskStats(Struct, frozen=True):
    """What a checkpoint cost one subtask; durations in seconds, `acknowledged` a time."""

    start_delay_s: float = 0.0
    alignment_s: float = 0.0
    sync_s: float = 0.0
    async_s: float = 0.0
    acknowledged: float = 0.0
    bytes_held: int = 0
    new_bytes: int = 0
    full_bytes: int = 0
    in_flight_bytes: int = 0
    """Of its inputs, overtaken by the barrier and kept in the checkpoint."""
    unaligned: bool = False
    """Whether the barrier overtook what waited here, be it nothing."""


class ChannelStats(Struct, frozen=True):
    """What a checkpoint meant for one input of an operator."""

    producer: str
    """The uid of the operator at its other end."""
    producer_name: str
    input: int
    """Counted from 1, as people do."""
    bytes_held: int = 0
    """The most that waited behind the barrier for other inputs."""
    in_flight_bytes: int = 0
    in_flight_records: int = 0


class ChannelState(Struct, frozen=True):
    """What was in flight in one input of an operator: overtaken by the barrier, not yet seen.

    The files lie beside the metadata; `in_flight_file` spells where. They fit only the very same
    channel: same operators at both ends, same subtasks behind it, same type of records.
    """

    producer: str
    """The uid of the operator at its other end."""
    input: int
    ordinal: int
    """Its number among the channels that share all of the above."""
    exchange: str
    parallelism: int
    """Of the operator that reads it."""
    type: str
    """Of its records."""
    attempt: str
    start: int
    end: int
    """The range in the log of the attempt, `end` being the position of the barrier."""
    entries: list[list[Segment]]
    """Those with data, in order."""
    tag: str | None = None
    """The side output of the producer that it takes, if not the main one."""


class InputClock(Struct, frozen=True):
    """What one input of a chain had said of event time."""

    producer: str
    """The uid of the operator at its other end."""
    input: int
    ordinal: int
    """Its number among the channels that share the above."""
    watermark: int
    is_idle: bool


class OperatorTime(Struct, frozen=True):
    """What event time it was at an operator, at the cut."""

    watermark: int = MIN_WATERMARK
    """Of the first operator of a chain: where its input stood."""
    next_event_timer: int | None = None
    next_processing_timer: int | None = None
    """When its first timers are due, or before that; None if there are none."""
    given: int = MIN_WATERMARK
    """Of one that makes watermarks: the last one it gave."""
    units: dict[str, int] = {}
    """What it made that of: a watermark per split or subtask."""
    idle: list[str] = []
    """Those of them whose generator had said that nobody shall wait for them."""
    generators: dict[str, GeneratorState] = {}
    """By split or subtask, the generators of the user's own. Pickled: for a program only that has
    such generators at this step."""
    inputs: list[InputClock] = []
    """Of the first operator of a chain."""


class OperatorSnapshot(Struct, frozen=True):
    """One operator at the cut, found again by its uid."""

    uid: str
    name: str
    kind: str
    parallelism: int
    max_parallelism: int
    version: int
    """Number of the stage's micro-batch behind which the cut is."""
    backend: str | None = None
    key_type: str = ""
    keyed: list[StateRef] = []
    """Per subtask; its files lie in `<job>/shared/<uid's directory>/<subtask>`."""
    operator_state: list[bytes] = []
    """Per subtask, as `state.operator_state` encodes it."""
    source: SourceState | None = None
    sink: SinkState | None = None
    ended: bool = False
    """Whether all of its input was before the cut."""
    timers: bytes = b""
    stats: list[SubtaskStats] = []
    """Per subtask."""
    savepoint: list[SavepointFile] = []
    """In a savepoint, the files of its keyed state instead of `keyed`."""
    in_flight: list[ChannelState] = []
    """By input; only what is not empty, and never in a savepoint."""
    channels: list[ChannelStats] = []
    """By input."""
    time: OperatorTime = OperatorTime()


class CheckpointMetadata(Struct, frozen=True):
    """One completed checkpoint or savepoint."""

    job_id: str
    job_name: str
    attempt: str
    checkpoint: int
    kind: str
    triggered: float
    completed: float
    penstock_version: str
    operators: list[OperatorSnapshot]
    properties: dict[str, str] = {}

    def operator(self, uid: str) -> OperatorSnapshot | None:
        """Return the operator of a uid, None if the checkpoint has none."""
        return next((o for o in self.operators if o.uid == uid), None)


def new_bytes(meta: CheckpointMetadata) -> int:
    """Return how many bytes of state were written for this checkpoint alone."""
    return sum(s.new_bytes + s.in_flight_bytes for o in meta.operators for s in o.stats)


def full_bytes(meta: CheckpointMetadata) -> int:
    """Return how many bytes of state a restore would read."""
    return sum(s.full_bytes + s.in_flight_bytes for o in meta.operators for s in o.stats)


def files_of(meta: CheckpointMetadata) -> list[str]:
    """Return the state files of a checkpoint, relative to `<job>/shared`, each once, sorted."""
    return sorted(
        {
            f"{file_name(OperatorUid(operator.uid))}/{subtask}/{file.name}"
            for operator in meta.operators
            for subtask, ref in enumerate(operator.keyed)
            for file in file_refs(ref)
        }
    )


def in_flight_file(operator_uid: str, state: ChannelState, segment: Segment) -> str:
    """Return where a file of in-flight records lies, from the checkpoint's directory."""
    channel = f"{file_name(OperatorUid(state.producer))}-{state.input}-{state.ordinal}"
    return f"in-flight/{file_name(OperatorUid(operator_uid))}/{channel}/{segment.name}"


def file_refs(ref: StateRef) -> Iterator[FileRef]:
    """Iterate over the files of one subtask's state, the oldest first."""
    if ref.base is not None:
        yield ref.base
    if ref.tables is not None:
        yield from ref.tables.files
    yield from ref.deltas
