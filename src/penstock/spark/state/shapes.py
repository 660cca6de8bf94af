"""Tables of states in the shape of Spark's `statestore` source, with further columns after it.

Spark has keys and values as structs. What is no struct here becomes one with the field `value`, as
Spark's encoders make it of plain values.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import MapTypeInfo, PickledBytesTypeInfo
from penstock.savepoint.key_columns import window_columns
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.operator_state import OperatorState
from penstock.state.key_groups import end_of_key
from penstock.types.signature import parse_signature

PLAIN = "value"
"""The only field of the struct that stands for a value that is none."""
_MOMENT = pa.timestamp("us", "UTC")
_PARTITION = pa.field("partition_id", pa.int32())
_KEY_GROUP = pa.field("key_group", pa.int32())
_POSITION = pa.field("list_position", pa.int32())
_WINDOW_COLUMNS = ("window_start", "window_end", "window")

Columns = dict[str, pa.Array]


class RowShape(ABC):
    """Turns the tables of one state into rows for Spark."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    @abstractmethod
    def batches(self, tables: Iterable[pa.Table], partition: int) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows of tables, which are in the order of stored keys."""


@dataclass(frozen=True)
class KeyedShape(RowShape):
    """The rows of a keyed state: one for a value, an element of a list, or an entry of a map."""

    state: KeyedState
    flatten: bool = True
    may_unpickle: bool = False
    with_key_bytes: bool = False

    @cached_property
    def schema(self) -> pa.Schema:  # noqa: D102
        given = self.state.schema
        own = [_PARTITION, _KEY_GROUP]
        own += [given.field(name) for name in _WINDOW_COLUMNS if name in given.names]
        if self.state.is_list and self.flatten:
            own.append(_POSITION)
        if self.state.info.ttl is not None:
            moment = pa.list_(_MOMENT) if self._is_collection else _MOMENT
            own += [pa.field("alive_since", moment), pa.field("expires_at", moment)]
        if self.with_key_bytes:
            own += [given.field(name) for name in given.names if name.endswith("_bytes")]
        return pa.schema([pa.field("key", _struct_type(self._key)), *self._values(), *own])

    def batches(  # noqa: D102
        self, tables: Iterable[pa.Table], partition: int
    ) -> Iterator[pa.RecordBatch]:
        if self.state.is_map and not self.flatten:
            tables = _whole_maps(tables)
        for table in tables:
            for batch in table.combine_chunks().to_batches():
                shaped = self.batch(batch, partition)
                if shaped.num_rows:
                    yield shaped

    def batch(self, batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
        """Return the rows of a batch, whose maps are whole if they are not flattened."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns["partition_id"] = pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
        if self._unpickles:
            columns["value"] = _unpickled(columns["value"])
        if self.state.info.ttl is not None:
            columns["expires_at"] = _later(columns["alive_since"], self.state.info.ttl.millis)
        if self.state.is_list:
            columns = self._lists(columns)
        elif self.state.is_map:
            columns = self._maps(columns)
        else:
            columns["value"] = _struct(columns["value"])
        columns["key"] = _struct(columns["key"])
        arrays = [_cast(columns[field.name], field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def deletions(self, batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
        """Return a row for each entry of a batch that does not exist any more, without its value.

        A list that is gone is one row.
        """
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns["partition_id"] = pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
        columns["key"] = _struct(columns["key"])
        if self.state.is_map:
            columns["user_map_key"] = _struct(columns["map_key"])
        gone = {"value", "user_map_value", "list_element", "list_value", "list_position"}
        gone |= {"alive_since", "expires_at"}
        arrays = [
            pa.nulls(batch.num_rows, field.type)
            if field.name in gone
            else _cast(columns[field.name], field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @property
    def _is_collection(self) -> bool:
        return not self.flatten and (self.state.is_list or self.state.is_map)

    @property
    def _key(self) -> pa.DataType:
        return self.state.schema.field("key").type

    def _values(self) -> list[pa.Field]:
        value = self.state.schema.field("value").type
        if self._unpickles:
            value = _unpickled_type(value)
        if self.state.is_list:
            element = _struct_type(value.value_type) if pa.types.is_list(value) else None
            if element is None:  # a list that was pickled as a whole
                return [pa.field("value", _struct_type(value))]
            if self.flatten:
                return [pa.field("list_element", element)]
            return [pa.field("list_value", pa.list_(element))]
        if self.state.is_map:
            key = _struct_type(self.state.schema.field("map_key").type)
            if self.flatten:
                return [
                    pa.field("user_map_key", key),
                    pa.field("user_map_value", _struct_type(value)),
                ]
            return [pa.field("map_value", pa.map_(key, _struct_type(value)))]
        return [pa.field("value", _struct_type(value))]

    @cached_property
    def _unpickles(self) -> bool:
        """Whether values, elements of lists or values of maps are pickled, and may be loaded."""
        return self.may_unpickle and is_pickled(self.state.info.type, self.state.is_map)

    def _lists(self, columns: Columns) -> Columns:
        lists = columns["value"]
        if not pa.types.is_list(lists.type):
            columns["value"] = _struct(lists)
            return columns
        if not self.flatten:
            elements = _struct(lists.values)
            mask = lists.is_null() if lists.null_count else None
            columns["list_value"] = pa.ListArray.from_arrays(lists.offsets, elements, mask=mask)
            return columns
        parents = pc.list_parent_indices(lists)
        found = {
            name: column.take(parents)
            for name, column in columns.items()
            if name not in ("value", "alive_since", "expires_at")
        }
        starts = lists.offsets.to_numpy()[:-1]
        at = np.arange(len(parents)) + (starts[0] if len(starts) else 0)
        found["list_position"] = pa.array(at - starts[parents.to_numpy()], pa.int32())
        found["list_element"] = _struct(lists.flatten())
        for name in ("alive_since", "expires_at"):
            if name in columns:
                found[name] = columns[name].flatten()
        return found

    def _maps(self, columns: Columns) -> Columns:
        key, value = _struct(columns.pop("map_key")), _struct(columns.pop("value"))
        if self.flatten:
            return {**columns, "user_map_key": key, "user_map_value": value}
        first, offsets = _runs(columns, "key_bytes", "window_bytes")
        found = {name: column.take(first) for name, column in columns.items()}
        found["map_value"] = pa.MapArray.from_arrays(offsets, key, value)
        for name in ("alive_since", "expires_at"):
            if name in columns:
                found[name] = pa.ListArray.from_arrays(offsets, columns[name])
        return found


@dataclass(frozen=True)
class TimerShape(RowShape):
    """The rows of the timers of one time domain."""

    state: KeyedState
    domain: str
    windows: str = ""
    """The encoding of the windows of its operator, which its timers then belong to."""

    @cached_property
    def schema(self) -> pa.Schema:  # noqa: D102
        key = self.state.schema.field("map_key").type
        fields = [
            pa.field("key", _struct_type(key)),
            pa.field("expiration_timestamp_ms", pa.int64()),
            _PARTITION,
            pa.field("time_domain", pa.string()),
            _KEY_GROUP,
        ]
        return pa.schema([*fields, *window_columns(self.windows).fields])

    def batches(  # noqa: D102
        self, tables: Iterable[pa.Table], partition: int
    ) -> Iterator[pa.RecordBatch]:
        for table in tables:
            for batch in table.combine_chunks().to_batches():
                count = batch.num_rows
                arrays = [
                    _struct(batch.column("map_key")),
                    batch.column("key"),
                    pa.repeat(pa.scalar(partition, pa.int32()), count),
                    pa.repeat(pa.scalar(self.domain, pa.string()), count),
                    batch.column("key_group").cast(pa.int32()),
                    *self._windows(batch.column("map_key_bytes")),
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _windows(self, entries: pa.Array) -> Iterable[pa.Array]:
        """Return the windows, which are what follows the key in a timer."""
        columns = window_columns(self.windows)
        if not columns.names:
            return ()
        texts = entries.to_pylist()
        return columns.to_arrow([one[end_of_key(b"\0\0" + one) - 2 :] for one in texts]).values()


@dataclass(frozen=True)
class OperatorShape:
    """The rows of operator state: one for an element of a list, or an entry of a broadcast map."""

    state: OperatorState
    may_unpickle: bool = False

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        given = self.state.schema
        arrow = given.field("value").type
        value = _struct_type(_unpickled_type(arrow) if self._unpickles else arrow)
        distribution = pa.field("distribution", pa.string())
        if self.state.is_broadcast:
            key = _struct_type(given.field("map_key").type)
            fields = [pa.field("user_map_key", key), pa.field("user_map_value", value)]
            return pa.schema([*fields, _PARTITION, distribution])
        return pa.schema([pa.field("list_element", value), _PARTITION, _POSITION, distribution])

    def table(self) -> pa.Table:
        """Return the rows."""
        given = self.state.table().combine_chunks()
        columns = {name: _whole(given.column(name)) for name in given.schema.names}
        value = columns["value"]
        value = _struct(_unpickled(value) if self._unpickles else value)
        kind = pa.repeat(pa.scalar(str(self.state.distribution), pa.string()), given.num_rows)
        if self.state.is_broadcast:
            arrays = [_struct(columns["map_key"]), value, columns["subtask"], kind]
        else:
            arrays = [value, columns["subtask"], columns["position"], kind]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    @property
    def _unpickles(self) -> bool:
        return self.may_unpickle and is_pickled(self.state.type, self.state.is_broadcast)


def is_pickled(signature: str, of_map: bool) -> bool:
    """Tell whether values of a type are pickled as a whole: those of a map, elements of a list."""
    type_info = parse_signature(signature)
    if of_map:
        assert isinstance(type_info, MapTypeInfo)
        type_info = type_info.value
    return isinstance(getattr(type_info, "element", type_info), PickledBytesTypeInfo)


def _struct_type(arrow: pa.DataType) -> pa.DataType:
    return arrow if pa.types.is_struct(arrow) else pa.struct([pa.field(PLAIN, arrow)])


def _struct(values: pa.Array) -> pa.Array:
    if pa.types.is_struct(values.type):
        return values
    return pa.StructArray.from_arrays([values], fields=[pa.field(PLAIN, values.type)])


def _cast(values: pa.Array, arrow: pa.DataType) -> pa.Array:
    return values if values.type == arrow else values.cast(arrow)


def _later(moments: pa.Array, millis: int) -> pa.Array:
    """Return moments, or lists of them, so many milliseconds later."""
    if pa.types.is_list(moments.type):
        inside = _later(moments.values, millis)
        return pa.ListArray.from_arrays(moments.offsets, inside)
    numbers = pc.add(moments.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()), millis)
    return numbers.cast(pa.timestamp("ms", "UTC"))


def _unpickled_type(arrow: pa.DataType) -> pa.DataType:
    return pa.list_(pa.string()) if pa.types.is_list(arrow) else pa.string()


def _unpickled(values: pa.Array) -> pa.Array:
    """Return the reprs of pickled values, or of those in lists; loading them can run any code."""
    if pa.types.is_list(values.type):
        inside = _unpickled(values.values)
        return pa.ListArray.from_arrays(values.offsets, inside, mask=values.is_null())
    texts = [None if data is None else repr(pickle.loads(data)) for data in values.to_pylist()]
    return pa.array(texts, pa.string())


def _runs(columns: Columns, *names: str) -> tuple[pa.Array, pa.Array]:
    """Return where runs of equal values in some columns begin, and these places with the end."""
    count = len(next(iter(columns.values())))
    differs = np.zeros(max(0, count - 1), bool)
    for name in names:
        if name in columns:
            column = columns[name]
            differs |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    first = np.concatenate([[0], np.flatnonzero(differs) + 1]) if count else np.zeros(0, np.int64)
    offsets = np.concatenate([first, [count]])
    return pa.array(first, pa.int64()), pa.array(offsets, pa.int32())


def _whole_maps(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Move rows from table to table so that no map is in two of them."""
    rest: pa.Table | None = None
    for table in tables:
        both = table if rest is None else pa.concat_tables([rest, table])
        names = [name for name in ("key_bytes", "window_bytes") if name in both.schema.names]
        first, _ = _runs({name: _whole(both.column(name)) for name in names}, *names)
        start = first[-1].as_py() if len(first) else 0
        rest = both.slice(start)
        if start:
            yield both.slice(0, start)
    if rest is not None:
        yield rest


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
