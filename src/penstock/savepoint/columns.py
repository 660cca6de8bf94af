"""Encoded values as Arrow columns of a savepoint and back, exactly.

A column holds what the MessagePack of a value holds, in the Arrow type that a reader would expect.
No pickled value is ever loaded here: its bytes stay bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, compress, pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.common.row import RowKind
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from penstock.state.registry.meta_info import LIST_STATE, MAP_STATE, NO_VALUE, RAW_STATE, TIMERS
from penstock.state.ttl.timestamps import split_timestamps, with_timestamps
from penstock.types.arrow import BASIC, SQL_TIME
from penstock.types.serializers import wire_of
from penstock.types.signature import parse_signature
from penstock.types.traversal import TypeVisitor, field_names

ToArrow = Callable[[Sequence[Any]], pa.Array]
FromArrow = Callable[[pa.Array], list[Any]]

_LONGEST_DECIMAL_BITS = 10_000  # Python refuses to write longer numbers in decimal digits
ROW_KIND = "_kind"
_EMPTY = "_"
_INSTANT = pa.timestamp("ms", "UTC")


@dataclass(frozen=True, slots=True)
class Column:
    """The Arrow column of values: in their wire form, or as the stored bytes of a state."""

    arrow: pa.DataType
    to_arrow: ToArrow
    from_arrow: FromArrow


def value_column(kind: str, signature: str) -> Column:
    """Return the column for the stored values of a state of this kind and type."""
    if kind in (RAW_STATE, TIMERS):
        return _bytes_column()
    type_info = parse_signature(signature)
    if kind == MAP_STATE:
        assert isinstance(type_info, MapTypeInfo)
        return _or_no_value(_encoded(type_info.value))
    return _encoded(type_info)


def _encoded(type_info: TypeInformation) -> Column:
    if isinstance(type_info, PickledBytesTypeInfo):
        return _bytes_column()
    column = column_of(type_info)
    unpack = msgspec.msgpack.Decoder(wire_of(type_info).shape).decode
    pack = msgspec.msgpack.Encoder().encode
    to_arrow, from_arrow = column.to_arrow, column.from_arrow
    return Column(
        column.arrow,
        lambda values: to_arrow(list(map(unpack, values))),
        lambda array: list(map(pack, from_arrow(array))),
    )


def _bytes_column() -> Column:
    return Column(
        pa.binary(),
        lambda values: pa.array(values, pa.binary()),
        lambda array: array.to_pylist(),
    )


def _or_no_value(column: Column) -> Column:
    """Let null stand for a map key whose value is None."""

    def to_arrow(values: Sequence[bytes]) -> pa.Array:
        if NO_VALUE not in values:
            return column.to_arrow(values)
        present = [value != NO_VALUE for value in values]
        column_of_present = column.to_arrow(list(compress(values, present)))
        ranks = accumulate(present, initial=0)
        indices = [rank if there else None for there, rank in zip(present, ranks, strict=False)]
        return column_of_present.take(pa.array(indices, pa.int64()))

    def from_arrow(array: pa.Array) -> list[bytes]:
        if not array.null_count:
            return column.from_arrow(array)
        values = iter(column.from_arrow(array.drop_null()))
        absent = array.is_null().to_pylist()
        return [NO_VALUE if null else next(values) for null in absent]

    return Column(column.arrow, to_arrow, from_arrow)


def column_of(type_info: TypeInformation) -> Column:
    """Return the column for values of a type."""
    return _Columns().visit(type_info)


class _Columns(TypeVisitor[Column]):
    def visit_basic(self, type_info: BasicTypeInfo) -> Column:
        match type_info.kind:
            case BasicType.STRING | BasicType.CHAR:
                return Column(pa.string(), _texts_to_arrow, _plain_from_arrow)
            case BasicType.BIG_INT:
                return _texts(_digits_of, _big_int_of)
            case BasicType.BIG_DEC:
                return _texts(str, str)
            case BasicType.INSTANT:
                number = _scalar(pa.int64())
                return _struct(["seconds", "nanos"], [number, number])
        return _scalar(BASIC[type_info.kind])

    def visit_sql_time(self, type_info: SqlTimeTypeInfo) -> Column:
        return _scalar(SQL_TIME[type_info.kind])

    def visit_leaf(self, type_info: TypeInformation) -> Column:
        return _scalar(pa.binary())

    def visit_array(self, element: Column, type_info: TypeInformation) -> Column:
        return _list(element)

    def visit_map(self, key: Column, value: Column, type_info: MapTypeInfo) -> Column:
        return _map(key, value, wire_of(type_info).to_wire is None)

    def visit_tuple(self, fields: list[Column], type_info: TupleTypeInfo) -> Column:
        return _struct(field_names(type_info), fields)

    def visit_row(self, fields: list[Column], type_info: RowTypeInfo) -> Column:
        names = _distinct([ROW_KIND, *type_info.field_names])
        return _struct(names, [_row_kinds(), *fields])


def _scalar(arrow: pa.DataType) -> Column:
    return Column(arrow, lambda values: pa.array(values, arrow), _plain_from_arrow)


def _plain_from_arrow(array: pa.Array) -> list[Any]:
    quick = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if quick and not array.null_count:
        numbers: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        return numbers
    values: list[Any] = array.to_pylist()
    return values


def _texts_to_arrow(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        # Only keys may contain lone surrogates, and their column is for display only.
        return pa.array([None if value is None else _plain_text(value) for value in values])


def _plain_text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _texts(to_text: Callable[[Any], str], from_text: Callable[[str], Any]) -> Column:
    def to_arrow(values: Sequence[Any]) -> pa.Array:
        return pa.array([None if v is None else to_text(v) for v in values], pa.string())

    def from_arrow(array: pa.Array) -> list[Any]:
        return [None if text is None else from_text(text) for text in array.to_pylist()]

    return Column(pa.string(), to_arrow, from_arrow)


def _digits_of(data: bytes) -> str:
    number = int.from_bytes(data, "big", signed=True)
    return str(number) if number.bit_length() < _LONGEST_DECIMAL_BITS else hex(number)


def _big_int_of(text: str) -> bytes:
    number = int(text, 0)
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _row_kinds() -> Column:
    """Return the column of a row's kind: null for INSERT."""
    symbols = {kind.value: str(kind) for kind in RowKind if kind is not RowKind.INSERT}
    values = {symbol: value for value, symbol in symbols.items()}

    def to_arrow(kinds: Sequence[Any]) -> pa.Array:
        return pa.array(list(map(symbols.get, kinds)), pa.string())

    def from_arrow(array: pa.Array) -> list[Any]:
        if array.null_count == len(array):
            return [RowKind.INSERT.value] * len(array)
        return [values.get(symbol, RowKind.INSERT.value) for symbol in array.to_pylist()]

    return Column(pa.string(), to_arrow, from_arrow)


def _distinct(names: Sequence[str]) -> list[str]:
    """Return distinct names that Arrow accepts; only their order matters for reading."""
    distinct: list[str] = []
    for name in reversed(names):
        usable = _plain_text(name) or _EMPTY
        while usable in distinct:
            usable += "_"
        distinct.append(usable)
    return distinct[::-1]


def _struct(names: list[str], columns: list[Column]) -> Column:
    # Parquet has no structs without fields.
    padding = [pa.field(_EMPTY, pa.bool_())] if not columns else []
    fields = [pa.field(n, c.arrow) for n, c in zip(names, columns, strict=True)] + padding
    nothing = (None,) * len(columns)

    def to_arrow(values: Sequence[Any]) -> pa.Array:
        absent = [value is None for value in values]
        mask = pa.array(absent, pa.bool_()) if any(absent) else None
        if mask is not None:
            values = [nothing if value is None else value for value in values]
        parts = list(zip(*values, strict=True)) if values else [()] * len(columns)
        arrays = [column.to_arrow(part) for column, part in zip(columns, parts, strict=True)]
        arrays += [pa.nulls(len(values), field.type) for field in padding]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)

    def from_arrow(array: pa.Array) -> list[Any]:
        if not columns:
            values: list[Any] = [()] * len(array)
        else:
            parts = zip(columns, array.flatten(), strict=True)
            values = list(zip(*[column.from_arrow(part) for column, part in parts], strict=True))
        return _with_nulls(array, values)

    return Column(pa.struct(fields), to_arrow, from_arrow)


def _list(element: Column) -> Column:
    arrow = pa.list_(element.arrow)

    def to_arrow(values: Sequence[Any]) -> pa.Array:
        offsets, mask = _offsets(values)
        inside = element.to_arrow(list(chain.from_iterable(value or () for value in values)))
        return pa.ListArray.from_arrays(offsets, inside, type=arrow, mask=mask)

    def from_arrow(array: pa.Array) -> list[Any]:
        inside = element.from_arrow(array.values)
        return _with_nulls(array, [inside[start:stop] for start, stop in _bounds(array)])

    return Column(arrow, to_arrow, from_arrow)


def _map(key: Column, value: Column, as_dict: bool) -> Column:
    """Return the column of a map, whose wire form is a dict or a list of pairs."""
    arrow = pa.map_(key.arrow, value.arrow)

    def to_arrow(mappings: Sequence[Any]) -> pa.Array:
        offsets, mask = _offsets(mappings)
        pairs = [m.items() if as_dict else m for m in mappings if m]
        flat = list(chain.from_iterable(pairs))
        keys, values = key.to_arrow([k for k, _ in flat]), value.to_arrow([v for _, v in flat])
        return pa.MapArray.from_arrays(offsets, keys, values, type=arrow, mask=mask)

    def from_arrow(array: pa.Array) -> list[Any]:
        flat = list(zip(key.from_arrow(array.keys), value.from_arrow(array.items), strict=True))
        pairs = [flat[start:stop] for start, stop in _bounds(array)]
        return _with_nulls(array, list(map(dict, pairs)) if as_dict else pairs)

    return Column(arrow, to_arrow, from_arrow)


def _offsets(values: Sequence[Any]) -> tuple[pa.Array, pa.Array | None]:
    lengths = [0 if value is None else len(value) for value in values]
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    mask = [value is None for value in values]
    return pa.array(offsets), pa.array(mask, pa.bool_()) if any(mask) else None


def _bounds(array: pa.Array) -> Iterable[tuple[int, int]]:
    return pairwise(array.offsets.to_pylist())


def _with_nulls(array: pa.Array, values: list[Any]) -> list[Any]:
    if not array.null_count:
        return values
    absent = array.is_null().to_pylist()
    return [None if null else value for null, value in zip(absent, values, strict=True)]


@dataclass(frozen=True, slots=True)
class TimestampColumn:
    """The Arrow column of the last-access timestamps of a state with a time-to-live."""

    arrow: pa.DataType
    to_arrow: Callable[[Sequence[bytes]], tuple[pa.Array, list[bytes]]]
    """Splits stored bytes into a column of timestamps and the values."""
    from_arrow: Callable[[pa.Array, Sequence[bytes]], list[bytes]]
    """Joins them again."""


def timestamp_column(kind: str) -> TimestampColumn:
    """Return the column for a kind of state."""
    is_list = kind == LIST_STATE

    def to_arrow(values: Sequence[bytes]) -> tuple[pa.Array, list[bytes]]:
        parts = [split_timestamps(value, kind) for value in values]
        flat = list(chain.from_iterable(timestamps for timestamps, _ in parts))
        column = pa.array(flat, pa.int64()).cast(_INSTANT)
        if is_list:
            offsets, _ = _offsets([timestamps for timestamps, _ in parts])
            column = pa.ListArray.from_arrays(offsets, column)
        return column, [body for _, body in parts]

    def from_arrow(column: pa.Array, bodies: Sequence[bytes]) -> list[bytes]:
        numbers = column.cast(pa.list_(pa.int64()) if is_list else pa.int64()).to_pylist()
        each = numbers if is_list else [[number] for number in numbers]
        pairs = zip(each, bodies, strict=True)
        return [with_timestamps(timestamps, body, kind) for timestamps, body in pairs]

    return TimestampColumn(pa.list_(_INSTANT) if is_list else _INSTANT, to_arrow, from_arrow)
