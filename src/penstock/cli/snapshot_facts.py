"""What a checkpoint or savepoint holds, read from its files alone and proven by checksums."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.checkpoint.channel_files import prove_segment
from penstock.checkpoint.metadata import (
    ChannelState,
    CheckpointMetadata,
    OperatorSnapshot,
    in_flight_file,
)
from penstock.checkpoint.metadata_codec import decode_metadata
from penstock.errors import CorruptStateError
from penstock.ids import OperatorUid
from penstock.savepoint.read import verify_files
from penstock.state.backends.base import FileRef, StatePlace, StateRef
from penstock.state.backends.registry import backend_named
from penstock.state.files import verify_file
from penstock.state.key_groups import key_group_range
from penstock.state.operator_state import decode_lists
from penstock.state.savepoint_file import SavepointFile
from penstock.state.table import REGISTRY, TableInfo, decode_info, registry_name
from penstock.task.layout import file_name

__all__ = [
    "METADATA",
    "Damage",
    "InFlightFacts",
    "Inspection",
    "ListFacts",
    "OperatorFacts",
    "StateFacts",
    "SubtaskFacts",
    "inspect",
]

METADATA = "_metadata"


class Damage(msgspec.Struct, frozen=True):
    """A file that is not what was written."""

    path: str
    reason: str


class StateFacts(msgspec.Struct, frozen=True):
    """One keyed state in one subtask; `bytes` are those of its keys and values, or of its file."""

    name: str
    kind: str
    type: str
    entries: int
    bytes: int
    ttl_ms: int | None = None
    """How long a value lives; None for ever."""


class ListFacts(msgspec.Struct, frozen=True):
    """One list of operator state in one subtask."""

    name: str
    declared: str
    elements: int
    bytes: int


class SubtaskFacts(msgspec.Struct, frozen=True):
    """The state of one subtask of an operator; its key groups end before `stop_key_group`."""

    subtask: int
    first_key_group: int
    stop_key_group: int
    files: int
    bytes: int
    states: list[StateFacts] = []
    lists: list[ListFacts] = []


class InFlightFacts(msgspec.Struct, frozen=True):
    """What a barrier had overtaken in one input: the records of a range of the channel's log."""

    producer: str
    producer_name: str
    input: int
    """Counted from 1."""
    ordinal: int
    """Its number among the channels between the same two operators."""
    attempt: str
    """Whose log it was."""
    start: int
    end: int
    """Where in the log the stage stood, and where the barrier."""
    micro_batches: int
    """With records, of the producer, in between."""
    records: int
    files: int
    bytes: int


class OperatorFacts(msgspec.Struct, frozen=True):
    """One operator."""

    uid: str
    name: str
    kind: str
    parallelism: int
    max_parallelism: int
    backend: str | None
    key_type: str
    ended: bool
    positions: dict[str, int] | None
    """Of a source, by split."""
    finished: bool
    """Whether a source has come to its end."""
    committables: int | None
    """Of a sink: what waits to be committed."""
    subtasks: list[SubtaskFacts]
    in_flight: list[InFlightFacts]
    """By input; nothing of an aligned checkpoint."""


class Inspection(msgspec.Struct, frozen=True):
    """One checkpoint or savepoint; `is_proven` is false if its files were not read."""

    path: str
    kind: str
    job_id: str
    job_name: str
    attempt: str
    checkpoint: int
    triggered: float
    completed: float
    penstock_version: str
    metadata_bytes: int
    operators: list[OperatorFacts]
    files: int
    bytes: int
    is_proven: bool
    damage: list[Damage]


def inspect(path: Path, *, with_files: bool = True) -> Inspection:
    """Read a checkpoint or savepoint; `path` is its directory or the metadata in it.

    Nothing is changed, and nothing is put beside it. Without `with_files` only the metadata is
    read, and of a checkpoint the names of states are not known.

    Raises:
        FileNotFoundError: there is no metadata.
        CorruptMetadataError: the metadata is damaged.
    """
    directory = path.parent if path.name == METADATA else path
    data = (directory / METADATA).read_bytes()
    metadata = decode_metadata(data, str(directory / METADATA))
    with tempfile.TemporaryDirectory(prefix="penstock-inspect-") as scratch:
        reader = _Reader(metadata, directory, Path(scratch), with_files=with_files)
        operators = [reader.operator(operator) for operator in metadata.operators]
    sizes = [size for operator in metadata.operators for size in _file_sizes(operator)]
    return Inspection(
        path=str(directory),
        kind=metadata.kind,
        job_id=metadata.job_id,
        job_name=metadata.job_name,
        attempt=metadata.attempt,
        checkpoint=metadata.checkpoint,
        triggered=metadata.triggered,
        completed=metadata.completed,
        penstock_version=metadata.penstock_version,
        metadata_bytes=len(data),
        operators=operators,
        files=len(sizes),
        bytes=sum(sizes),
        is_proven=with_files,
        damage=reader.damage,
    )


def _file_sizes(operator: OperatorSnapshot) -> list[int]:
    return [
        *(file.size for ref in operator.keyed for file in ref.files),
        *(file.size for file in operator.savepoint),
        *(segment.size for state in operator.in_flight for e in state.entries for segment in e),
    ]


class _Reader:
    def __init__(
        self, metadata: CheckpointMetadata, directory: Path, scratch: Path, *, with_files: bool
    ) -> None:
        self._names = {operator.uid: operator.name for operator in metadata.operators}
        self._directory = directory
        self._scratch = scratch
        self._with_files = with_files
        self.damage: list[Damage] = []

    def operator(self, operator: OperatorSnapshot) -> OperatorFacts:
        source, sink = operator.source, operator.sink
        return OperatorFacts(
            uid=operator.uid,
            name=operator.name,
            kind=operator.kind,
            parallelism=operator.parallelism,
            max_parallelism=operator.max_parallelism,
            backend=operator.backend if operator.keyed or operator.savepoint else None,
            key_type=operator.key_type,
            ended=operator.ended,
            positions=None if source is None else source.positions,
            finished=source is not None and source.finished,
            committables=None if sink is None else len(sink.committables),
            subtasks=list(self._subtasks(operator)),
            in_flight=[self._in_flight(operator, state) for state in operator.in_flight],
        )

    def _in_flight(self, operator: OperatorSnapshot, state: ChannelState) -> InFlightFacts:
        segments = [segment for entry in state.entries for segment in entry]
        for segment in segments if self._with_files else ():
            path = self._directory / in_flight_file(operator.uid, state, segment)
            try:
                prove_segment(path, segment)
            except CorruptStateError as error:
                self.damage.append(Damage(error.path, error.reason))
        return InFlightFacts(
            producer=state.producer,
            producer_name=self._names.get(state.producer, state.producer),
            input=state.input + 1,
            ordinal=state.ordinal,
            attempt=state.attempt,
            start=state.start,
            end=state.end,
            micro_batches=len(state.entries),
            records=sum(segment.rows for segment in segments),
            files=len(segments),
            bytes=sum(segment.size for segment in segments),
        )

    def _subtasks(self, operator: OperatorSnapshot) -> Iterator[SubtaskFacts]:
        count = max(len(operator.keyed), len(operator.operator_state))
        if operator.savepoint:
            count = max(count, operator.parallelism)
        for subtask in range(count):
            lists = _lists(operator, subtask)
            key_groups = key_group_range(operator.max_parallelism, operator.parallelism, subtask)
            files, states = self._keyed(operator, subtask)
            yield SubtaskFacts(
                subtask=subtask,
                first_key_group=key_groups.start,
                stop_key_group=key_groups.stop,
                files=len(files),
                bytes=sum(files),
                states=states,
                lists=lists,
            )

    def _keyed(
        self, operator: OperatorSnapshot, subtask: int
    ) -> tuple[list[int], list[StateFacts]]:
        if operator.savepoint:
            mine = [file for file in operator.savepoint if file.subtask == subtask]
            for file in mine if self._with_files else ():
                self._prove_saved(file)
            states = [_of_file(f) for f in mine]
            return [file.size for file in mine], states
        if subtask >= len(operator.keyed):
            return [], []
        ref = operator.keyed[subtask]
        states = self._states(operator, subtask, ref) if self._with_files else []
        inline = [] if ref.inline is None else [len(ref.inline)]
        return [file.size for file in ref.files] + inline, states

    def _prove_saved(self, file: SavepointFile) -> None:
        try:
            verify_files(self._directory, [file])
        except CorruptStateError as error:
            self.damage.append(Damage(error.path, error.reason))

    def _states(self, operator: OperatorSnapshot, subtask: int, ref: StateRef) -> list[StateFacts]:
        name = file_name(OperatorUid(operator.uid))
        place = StatePlace(
            self._directory.parent / "shared" / name / str(subtask),
            self._scratch / name / str(subtask),
        )
        bad = [damage for file in ref.files if (damage := _proven(place, file)) is not None]
        self.damage += bad
        if bad:
            return []
        try:
            return _measured(operator, place, ref)
        except CorruptStateError as error:
            self.damage.append(Damage(error.path, error.reason))
            return []


def _proven(place: StatePlace, file: FileRef) -> Damage | None:
    try:
        verify_file(place, file)
    except CorruptStateError as error:
        return Damage(error.path, error.reason)
    return None


def _of_file(file: SavepointFile) -> StateFacts:
    ttl_ms = None if file.ttl is None else file.ttl.millis
    return StateFacts(file.state, file.kind, file.type, file.rows, file.size, ttl_ms)


def _measured(operator: OperatorSnapshot, place: StatePlace, ref: StateRef) -> list[StateFacts]:
    """Count the entries of every state; the registry comes first and names them."""
    known: dict[int, tuple[str, TableInfo]] = {}
    entries: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for key, value in backend_named(operator.backend or "").entries(place, ref):
        table = int.from_bytes(key[:2], "big")
        if table == REGISTRY:
            info = decode_info(value)
            known[info.table] = registry_name(key), info
        else:
            entries[table] = entries.get(table, 0) + 1
            sizes[table] = sizes.get(table, 0) + len(key) + len(value)
    return [
        StateFacts(
            name,
            info.kind,
            info.type,
            entries.get(table, 0),
            sizes.get(table, 0),
            None if info.ttl is None else info.ttl.millis,
        )
        for table, (name, info) in sorted(known.items())
    ]


def _lists(operator: OperatorSnapshot, subtask: int) -> list[ListFacts]:
    if subtask >= len(operator.operator_state):
        return []
    stored = decode_lists(operator.operator_state[subtask])
    return [
        ListFacts(name, a_list.declared, len(a_list.elements), sum(map(len, a_list.elements)))
        for name, a_list in sorted(stored.items())
    ]
