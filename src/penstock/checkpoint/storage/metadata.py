"""The metadata of a checkpoint: all that a restore needs besides the state files.

These structs are a file format. Where a field has `name=...`, that is its name in the file, and
the field's own name is the one the code uses. A field may be added with a default; without a new
version in `metadata_serializer` no persisted name and no meaning may change.
"""

from __future__ import annotations

from msgspec import Struct, field

from penstock.channel.segment import Segment
from penstock.common.event_time import MIN_WATERMARK
from penstock.connectors.contracts.snapshot_files import SnapshotFiles
from penstock.ids import OperatorUid
from penstock.state.backends.refs import StateRef
from penstock.state.savepoint_file import SavepointFile
from penstock.task.layout import file_name
from penstock.task.messages import GeneratorState

LINEAGE = "life"
"""Property: the restore lineage of the job that took the snapshot."""
JOB_INSTANCE = "job-instance"
"""Property: the job instance that took the snapshot; other jobs may have its id."""
JOB_DIRECTORY = "job-directory"
"""Property of a savepoint: the directory of its job, which keeps a copy of the metadata."""


class CommittableState(Struct, frozen=True):
    """What a sink pre-committed at the barrier of a checkpoint and is not known to be committed."""

    checkpoint: int
    data: bytes


class SinkState(Struct, frozen=True):
    """A sink at the barrier: its committables up to this checkpoint, and unfinished output."""

    committables: list[CommittableState]
    state: list[bytes]


class SourceState(Struct, frozen=True):
    """A source at the barrier: the position of every split, and whether it has ended."""

    positions: dict[str, int]
    finished: bool
    enumerator_state: bytes = field(default=b"", name="memory")
    files: SnapshotFiles | None = field(default=None, name="kept")
    """The enumerator's own files."""


class SubtaskStats(Struct, frozen=True):
    """Statistics of one subtask; durations in seconds, `acknowledged` is a time."""

    start_delay_s: float = 0.0
    alignment_s: float = 0.0
    sync_s: float = 0.0
    async_s: float = 0.0
    acknowledged: float = 0.0
    blocked_bytes: int = field(default=0, name="bytes_held")
    new_bytes: int = 0
    full_bytes: int = 0
    in_flight_bytes: int = 0
    """Of its inputs, overtaken by the barrier and stored in the checkpoint."""
    unaligned: bool = False
    """Whether the barrier was handled unaligned, even if it overtook nothing."""


class ChannelStats(Struct, frozen=True):
    """Statistics of one input of an operator."""

    producer: str
    """The uid of the upstream operator."""
    producer_name: str
    input: int
    """Counted from 1."""
    blocked_bytes: int = field(default=0, name="bytes_held")
    """The most bytes that were blocked after the barrier while other inputs were aligned."""
    in_flight_bytes: int = 0
    in_flight_records: int = 0


class ChannelState(Struct, frozen=True):
    """The in-flight data of one input of an operator, which the barrier has overtaken.

    `in_flight_file` returns where its files are. They can be restored only into the same channel:
    same operators at both ends, same parallelism downstream, same type of records.
    """

    producer: str
    """The uid of the upstream operator."""
    input: int
    ordinal: int
    """Its number among the channels that share all of the above."""
    exchange: str
    parallelism: int
    """Of the downstream operator."""
    type: str
    """Of its records."""
    attempt: str
    start: int
    end: int
    """The range in the channel log of the attempt; `end` is the position of the barrier."""
    entries: list[list[Segment]]
    """The segments of each entry with data, in order."""
    tag: str | None = None
    """The side output of the producer that it carries, None for the main output."""


class InputWatermarkStatus(Struct, frozen=True):
    """The watermark status of one input of a chain."""

    producer: str
    """The uid of the upstream operator."""
    input: int
    ordinal: int
    """Its number among the channels that share the above."""
    watermark: int
    is_idle: bool


class OperatorTime(Struct, frozen=True):
    """Watermarks and timers of an operator at the barrier."""

    watermark: int = MIN_WATERMARK
    """Of the first operator of a chain: the watermark of its input."""
    next_event_timer: int | None = None
    next_processing_timer: int | None = None
    """When the first timers are due, at the earliest; None if there are none."""
    emitted: int = field(default=MIN_WATERMARK, name="given")
    """Of an operator that generates watermarks: the last one it emitted."""
    splits: dict[str, int] = field(default_factory=dict, name="units")
    """Its watermark per split, or per subtask after an exchange."""
    idle: list[str] = []
    """The splits that are idle."""
    generators: dict[str, GeneratorState] = {}
    """By split, the user's own watermark generators, pickled."""
    inputs: list[InputWatermarkStatus] = []
    """Of the first operator of a chain."""


class OperatorSnapshot(Struct, frozen=True):
    """One operator at the barrier, identified by its uid."""

    uid: str
    name: str
    kind: str
    parallelism: int
    max_parallelism: int
    version: int
    """The last micro-batch of the stage before the barrier."""
    backend: str | None = None
    key_type: str = ""
    keyed: list[StateRef] = []
    """Per subtask; the files are in `<job>/shared/<uid's directory>/<subtask>`."""
    operator_state: list[bytes] = []
    """Per subtask, as `penstock.state.operator.states.encode_lists` encodes it."""
    source: SourceState | None = None
    sink: SinkState | None = None
    ended: bool = False
    """Whether all of its input was before the barrier."""
    timers: bytes = b""
    """Never written: timers are part of the keyed state."""
    stats: list[SubtaskStats] = []
    """Per subtask."""
    savepoint: list[SavepointFile] = []
    """The files of its keyed state in a savepoint, instead of `keyed`."""
    in_flight: list[ChannelState] = []
    """By input; only inputs with in-flight data, none in a savepoint."""
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
        """Return the operator with a uid, None if there is none."""
        return next((o for o in self.operators if o.uid == uid), None)


def new_bytes(meta: CheckpointMetadata) -> int:
    """Return how many bytes of state were written for this checkpoint."""
    return sum(s.new_bytes + s.in_flight_bytes for o in meta.operators for s in o.stats)


def full_bytes(meta: CheckpointMetadata) -> int:
    """Return how many bytes of state a restore reads."""
    return sum(s.full_bytes + s.in_flight_bytes for o in meta.operators for s in o.stats)


def files_of(meta: CheckpointMetadata) -> list[str]:
    """Return the state files of a checkpoint, relative to `<job>/shared`, each once, sorted."""
    return sorted(
        {
            f"{file_name(OperatorUid(operator.uid))}/{subtask}/{file.stored_name}"
            for operator in meta.operators
            for subtask, ref in enumerate(operator.keyed)
            for file in ref.files
        }
    )


def in_flight_file(operator_uid: str, state: ChannelState, segment: Segment) -> str:
    """Return the path of a file with in-flight data, relative to the checkpoint's directory."""
    channel = f"{file_name(OperatorUid(state.producer))}-{state.input}-{state.ordinal}"
    return f"in-flight/{file_name(OperatorUid(operator_uid))}/{channel}/{segment.name}"
