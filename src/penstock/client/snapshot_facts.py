"""Reads and verifies the contents of a checkpoint or savepoint, from its files alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from penstock.checkpoint.barriers.channel_state_files import in_flight_checks
from penstock.checkpoint.storage.metadata import ChannelState, OperatorSnapshot
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.common.storage_url import Location
from penstock.connectors.files.enumerator import count_finished_files
from penstock.errors import CorruptStateError
from penstock.savepoint.read import verify_files
from penstock.snapshots.sizes import StateSize, measure
from penstock.snapshots.state_parts import CheckpointPart, SavepointPart, StatePart
from penstock.snapshots.stored_snapshot import StoredSnapshot, opened_part
from penstock.state.files import verify
from penstock.state.key_groups import key_group_range
from penstock.state.operator.states import decode_lists
from penstock.state.registry.meta_info import TtlMetaInfo
from penstock.state.savepoint_file import SavepointFile
from penstock.storage.storages import storage_at

METADATA = "_metadata"

T = TypeVar("T", bound=msgspec.Struct)


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
    """How long a value lives; None means forever."""
    by_key_group: dict[int, int] = {}
    """Bytes by key group, if they were asked for and the entries could be read."""
    entries_by_key_group: dict[int, int] = {}
    queryable: str = ""
    """The name under which others may look it up, empty if it has none."""


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
    """In-flight data of one input: the records in a range of the channel's log."""

    producer: str
    producer_name: str
    input: int
    """Counted from 1."""
    ordinal: int
    """The index among the channels between the same two operators."""
    attempt: str
    """The attempt that wrote the log."""
    start: int
    end: int
    """The positions of the stage and of the barrier in the log."""
    micro_batches: int
    """How many micro-batches of the producer with records are in between."""
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
    finished_files: int
    """Of a file source: the files read to their end that still existed."""
    finished: bool
    """Whether a source has reached its end."""
    committables: int | None
    """Of a sink: how many committables are pending."""
    subtasks: list[SubtaskFacts]
    in_flight: list[InFlightFacts]
    """By input; empty in an aligned checkpoint."""


class Inspection(msgspec.Struct, frozen=True):
    """One checkpoint or savepoint; `is_verified` is false if its files were not read."""

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
    is_verified: bool
    damage: list[Damage]


def inspect(
    path: Location,
    *,
    with_files: bool = True,
    by_key_group: bool = False,
    on_part: Callable[[str], None] | None = None,
) -> Inspection:
    """Read a checkpoint or savepoint; `path` is its directory or the metadata in it.

    Nothing is changed or written. Without `with_files` only the metadata is read, and the state
    names of a checkpoint are not known. `on_part` is called with what is read next.

    Raises:
        FileNotFoundError: there is no metadata.
        CorruptMetadataError: the metadata is damaged.
    """
    directory = path.parent if path.name == METADATA else path
    data = storage_at(directory).read(METADATA)
    metadata = decode_metadata(data, str(directory / METADATA))
    with tempfile.TemporaryDirectory(prefix="penstock-inspect-") as scratch:
        reader = _Reader(
            StoredSnapshot(metadata, directory),
            Path(scratch),
            with_files=with_files,
            by_key_group=by_key_group,
            on_part=on_part,
        )
        operators = [reader.operator(operator) for operator in metadata.operators]
    sizes = [size for operator in metadata.operators for size in _file_sizes(operator)]
    return _facts(
        Inspection,
        metadata,
        path=str(directory),
        metadata_bytes=len(data),
        operators=operators,
        files=len(sizes),
        bytes=sum(sizes),
        is_verified=with_files,
        damage=reader.damage,
    )


def _facts(target: type[T], source: object, **facts: Any) -> T:
    """Return a struct of these facts, and of the attributes of a source for all other fields."""
    others = {name for name in target.__struct_fields__ if name not in facts}
    return target(**{name: getattr(source, name) for name in others}, **facts)


def _file_sizes(operator: OperatorSnapshot) -> list[int]:
    return [
        *(file.size for ref in operator.keyed for file in ref.files),
        *(file.size for file in operator.savepoint),
        *(segment.size for state in operator.in_flight for e in state.entries for segment in e),
    ]


class _Reader:
    def __init__(
        self,
        stored: StoredSnapshot,
        scratch: Path,
        *,
        with_files: bool,
        by_key_group: bool,
        on_part: Callable[[str], None] | None,
    ) -> None:
        self._on_part = on_part
        self._names = {operator.uid: operator.name for operator in stored.metadata.operators}
        self._stored = stored
        self._scratch = scratch
        self._with_files = with_files
        self._by_key_group = by_key_group
        self.damage: list[Damage] = []

    def operator(self, operator: OperatorSnapshot) -> OperatorFacts:
        source, sink = operator.source, operator.sink
        return _facts(
            OperatorFacts,
            operator,
            backend=operator.backend if operator.keyed or operator.savepoint else None,
            positions=None if source is None else source.positions,
            finished_files=0
            if source is None
            else count_finished_files(source.positions, source.enumerator_state),
            finished=source is not None and source.finished,
            committables=None if sink is None else len(sink.committables),
            subtasks=list(self._subtasks(operator)),
            in_flight=[self._in_flight(operator, state) for state in operator.in_flight],
        )

    def _in_flight(self, operator: OperatorSnapshot, state: ChannelState) -> InFlightFacts:
        segments = [segment for entry in state.entries for segment in entry]
        if self._with_files:
            for check in in_flight_checks(self._stored.directory, operator.uid, [state]):
                with self._recorded_damage():
                    check()
        return _facts(
            InFlightFacts,
            state,
            producer_name=self._names.get(state.producer, state.producer),
            input=state.input + 1,
            micro_batches=len(state.entries),
            records=sum(segment.rows for segment in segments),
            files=len(segments),
            bytes=sum(segment.size for segment in segments),
        )

    def _subtasks(self, operator: OperatorSnapshot) -> Iterator[SubtaskFacts]:
        count = max(len(operator.keyed), len(operator.operator_state))
        if operator.savepoint:
            count = max(count, operator.parallelism)
        parts = {part.subtask: part for part in self._stored.parts(operator)}
        for subtask in range(count):
            lists = _lists(operator, subtask)
            key_groups = key_group_range(operator.max_parallelism, operator.parallelism, subtask)
            if self._on_part is not None:
                self._on_part(f"{operator.name}, subtask {subtask + 1} of {count}")
            files, states = self._keyed(operator, parts.get(subtask))
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
        self, operator: OperatorSnapshot, part: StatePart | None
    ) -> tuple[list[int], list[StateFacts]]:
        if isinstance(part, SavepointPart):
            return [file.size for file in part.files], self._of_savepoint(operator, part)
        if not isinstance(part, CheckpointPart):
            return [], []
        ref = part.ref
        states: list[StateFacts] = []
        if self._with_files:
            checks = [partial(verify, part.location, file) for file in ref.files]
            states = self._measured(operator, part, checks) or []
        inline = [] if ref.inline is None else [len(ref.inline)]
        return [file.size for file in ref.files] + inline, states

    def _of_savepoint(self, operator: OperatorSnapshot, part: SavepointPart) -> list[StateFacts]:
        known = [_of_file(file) for file in part.files]
        if not self._with_files:
            return known
        checks = [partial(verify_files, self._stored.directory, [file]) for file in part.files]
        if self._by_key_group:
            # Files without rows are not needed for that.
            for file, check in zip(part.files, checks, strict=True):
                if not file.rows:
                    with self._recorded_damage():
                        check()
            return self._measured(operator, part, checks) or known
        for check in checks:
            with self._recorded_damage():
                check()
        return known

    def _measured(
        self, operator: OperatorSnapshot, part: StatePart, checks: Sequence[Callable[[], None]]
    ) -> list[StateFacts] | None:
        """Measure the states of a part; None if a file is damaged, then all files are checked.

        Opening a part verifies its files.
        """
        try:
            with opened_part(part, self._scratch) as opened:
                states = self._stored.keyed_states(operator, [opened])
                return [self._of_state(size) for size in measure(opened, states)]
        except CorruptStateError as error:
            known = len(self.damage)
            for check in checks:
                with self._recorded_damage():
                    check()
            if len(self.damage) == known:
                self.damage.append(Damage(error.path, error.reason))
        return None

    def _of_state(self, size: StateSize) -> StateFacts:
        state, groups = size.state, size.key_groups.items() if self._by_key_group else ()
        return StateFacts(
            state.name,
            state.kind,
            state.info.type,
            size.entries,
            size.bytes,
            _millis(state.info.ttl),
            {group: found.bytes for group, found in groups},
            {group: found.entries for group, found in groups},
            state.info.queryable,
        )

    @contextmanager
    def _recorded_damage(self) -> Iterator[None]:
        try:
            yield
        except CorruptStateError as error:
            self.damage.append(Damage(error.path, error.reason))


def _of_file(file: SavepointFile) -> StateFacts:
    ttl_ms = _millis(file.ttl)
    return StateFacts(
        file.state,
        file.kind,
        file.type,
        file.rows,
        file.size,
        ttl_ms,
        queryable=file.info.queryable,
    )


def _millis(ttl: TtlMetaInfo | None) -> int | None:
    return None if ttl is None else ttl.millis


def _lists(operator: OperatorSnapshot, subtask: int) -> list[ListFacts]:
    if subtask >= len(operator.operator_state):
        return []
    stored = decode_lists(operator.operator_state[subtask])
    return [
        ListFacts(name, a_list.declared, len(a_list.elements), sum(map(len, a_list.elements)))
        for name, a_list in sorted(stored.items())
    ]
