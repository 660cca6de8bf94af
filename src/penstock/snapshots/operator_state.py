"""What a snapshot has besides keyed state, as tables.

That is operator state, the positions of sources, and the pending committables of sinks. All of it
is in the metadata of the snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import msgspec
import pyarrow as pa

from penstock.checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot
from penstock.common.typeinfo import MapTypeInfo, TypeInformation
from penstock.errors import StateDeclaredTwiceError, UnknownStateError
from penstock.savepoint.columns import Column, value_column
from penstock.savepoint.key_columns import KeyColumn, key_column
from penstock.state.operator.states import RedistributionMode, decode_lists
from penstock.state.registry.meta_info import LIST_STATE, MAP_STATE, NO_VALUE
from penstock.types.signature import parse_signature, type_signature

POSITIONS = pa.schema(
    [
        pa.field("operator_uid", pa.string(), nullable=False),
        pa.field("operator_name", pa.string(), nullable=False),
        pa.field("split", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("finished", pa.bool_(), nullable=False),
        pa.field("enumerator_state", pa.binary(), nullable=False),
    ]
)
COMMITTABLES = pa.schema(
    [
        pa.field("operator_uid", pa.string(), nullable=False),
        pa.field("operator_name", pa.string(), nullable=False),
        pa.field("checkpoint_id", pa.int64(), nullable=False),
        pa.field("committable", pa.binary(), nullable=False),
    ]
)

_NO_SPLITS: list[tuple[str | None, int | None]] = [(None, None)]

_unpack_entry = msgspec.msgpack.Decoder(tuple[bytes, bytes | None]).decode


@dataclass(frozen=True)
class OperatorState:
    """One list or broadcast map of an operator, with what each of its subtasks has."""

    operator: str
    name: str
    distribution: RedistributionMode
    type: str
    """The signature of the type: of a list's element, or of a map as a whole."""
    subtasks: tuple[tuple[bytes, ...], ...]
    """The encoded elements by subtask."""

    @property
    def is_broadcast(self) -> bool:
        """Whether it is a map of which all subtasks have the same copy."""
        return self.distribution is RedistributionMode.BROADCAST

    @property
    def type_info(self) -> TypeInformation:
        """The type of a list's element, or of a map as a whole."""
        return parse_signature(self.type)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of its table."""
        place = pa.field("subtask", pa.int32(), nullable=False)
        if self.is_broadcast:
            return pa.schema(
                [
                    place,
                    pa.field("map_key", self._map_key.arrow),
                    pa.field("value", self._value.arrow),
                    pa.field("map_key_bytes", pa.binary(), nullable=False),
                ]
            )
        position = pa.field("position", pa.int32(), nullable=False)
        return pa.schema([place, position, pa.field("value", self._value.arrow)])

    def table(self) -> pa.Table:
        """Return a row for each element of a list, or for each entry of a map.

        A map has one copy: that of the first subtask that has it.
        """
        if self.is_broadcast:
            return self._entries()
        subtasks: list[int] = []
        positions: list[int] = []
        for subtask, elements in enumerate(self.subtasks):
            subtasks += [subtask] * len(elements)
            positions += range(len(elements))
        values = self._value.to_arrow(list(chain.from_iterable(self.subtasks)))
        return pa.table(
            [pa.array(subtasks, pa.int32()), pa.array(positions, pa.int32()), values],
            schema=self.schema,
        )

    def _entries(self) -> pa.Table:
        subtask = next((n for n, elements in enumerate(self.subtasks) if elements), 0)
        elements = self.subtasks[subtask] if self.subtasks else ()
        pairs = list(map(_unpack_entry, elements))
        keys = pa.array([key for key, _ in pairs], pa.binary())
        values = [NO_VALUE if value is None else value for _, value in pairs]
        return pa.table(
            [
                pa.array([subtask] * len(pairs), pa.int32()),
                self._map_key.to_arrow(keys),
                self._value.to_arrow(values),
                keys,
            ],
            schema=self.schema,
        )

    @cached_property
    def _value(self) -> Column:
        return value_column(MAP_STATE if self.is_broadcast else LIST_STATE, self.type)

    @cached_property
    def _map_key(self) -> KeyColumn:
        type_info = self.type_info
        assert isinstance(type_info, MapTypeInfo)
        return key_column(type_signature(type_info.key))


def operator_states(operator: OperatorSnapshot) -> list[OperatorState]:
    """Return the operator state of an operator, by name.

    Raises:
        StateDeclaredTwiceError: two subtasks declare a name differently.
    """
    versions = [decode_lists(version) for version in operator.operator_state]
    found = []
    for name in sorted({name for version in versions for name in version}):
        stored = [version[name] for version in versions if name in version]
        declared = stored[0].declared
        for other in stored:
            if other.declared != declared:
                raise StateDeclaredTwiceError(operator.name, name, declared, other.declared)
        found.append(
            OperatorState(
                operator.name,
                name,
                stored[0].distribution,
                stored[0].type,
                tuple(
                    tuple(version[name].elements) if name in version else () for version in versions
                ),
            )
        )
    return found


def operator_state(operator: OperatorSnapshot, name: str) -> OperatorState:
    """Return the operator state with a name.

    Raises:
        UnknownStateError: there is none.
    """
    found = operator_states(operator)
    for state in found:
        if state.name == name:
            return state
    raise UnknownStateError(operator.name, name, tuple(state.name for state in found))


def source_positions(
    metadata: CheckpointMetadata, operators: Sequence[OperatorSnapshot] | None = None
) -> pa.Table:
    """Return a row for each split of the sources; of all operators, unless some are given.

    A source without splits has one row, in which split and position are null.
    """
    rows: list[tuple[object, ...]] = []
    for operator in metadata.operators if operators is None else operators:
        source = operator.source
        if source is None:
            continue
        positions = sorted(source.positions.items())
        rows += [
            (operator.uid, operator.name, split, at, source.finished, source.enumerator_state)
            for split, at in (positions or _NO_SPLITS)
        ]
    return _table(rows, POSITIONS)


def pending_committables(
    metadata: CheckpointMetadata, operators: Sequence[OperatorSnapshot] | None = None
) -> pa.Table:
    """Return a row for each committable of the sinks; of all operators, unless some are given."""
    rows = [
        (operator.uid, operator.name, committable.checkpoint, committable.data)
        for operator in (metadata.operators if operators is None else operators)
        if operator.sink is not None
        for committable in operator.sink.committables
    ]
    return _table(rows, COMMITTABLES)


def _table(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    if not rows:
        return schema.empty_table()
    columns = zip(zip(*rows, strict=True), schema, strict=True)
    return pa.table([pa.array(values, field.type) for values, field in columns], schema=schema)
