"""Encoded values as Arrow columns and back, exactly.

A column holds what the MessagePack of a value says, in the Arrow type that a reader would expect.
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
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SqlTimeType,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from penstock.state.serializers import wire_of
from penstock.state.table import MAP_STATE, NO_VALUE, RAW_STATE, TIMERS
from penstock.state.type_text import parse

__all__ = ["Column", "ValueColumn", "column_of", "value_column"]

Fill = Callable[[Sequence[Any]], pa.Array]
Drain = Callable[[pa.Array], list[Any]]

_LONGEST_DECIMAL_BITS = 10_000  # Python refuses to write longer numbers in decimal digits
_ROW_KIND = "_kind"
_EMPTY = "_"


@dataclass(frozen=True, slots=True)
class Column:
    """How values of one type lie in Arrow; ``fill`` and ``drain`` work on their wire form."""

    arrow: pa.DataType
    fill: Fill
    drain: Drain


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """How the stored values of one state lie in Arrow."""

    arrow: pa.DataType
    fill: Callable[[Sequence[bytes]], pa.Array]
    drain: Callable[[pa.Array], list[bytes]]


def value_column(kind: str, type_text: str) -> ValueColumn:
    """Return the column for what a state of this kind and type stores."""
    if kind in (RAW_STATE, TIMERS):
        return _bytes_column()
    type_info = parse(type_text)
    if kind == MAP_STATE:
        assert isinstance(type_info, MapTypeInfo)
        return _or_no_value(_encoded(type_info.value))
    return _encoded(type_info)


def _encoded(type_info: TypeInformation) -> ValueColumn:
    if isinstance(type_info, PickledBytesTypeInfo):
        return _bytes_column()
    column = column_of(type_info)
    unpack = msgspec.msgpack.Decoder(wire_of(type_info).shape).decode
    pack = msgspec.msgpack.Encoder().encode
    fill, drain = column.fill, column.drain
    return ValueColumn(
        column.arrow,
        lambda values: fill(list(map(unpack, values))),
        lambda array: list(map(pack, drain(array))),
    )


def _bytes_column() -> ValueColumn:
    return ValueColumn(
        pa.binary(),
        lambda values: pa.array(values, pa.binary()),
        lambda array: array.to_pylist(),
    )


def _or_no_value(column: ValueColumn) -> ValueColumn:
    """Let null stand for the map key that is there with None."""

    def fill(values: Sequence[bytes]) -> pa.Array:
        if NO_VALUE not in values:
            return column.fill(values)
        present = [value != NO_VALUE for value in values]
        filled = column.fill(list(compress(values, present)))
        ranks = accumulate(present, initial=0)
        indices = [rank if there else None for there, rank in zip(present, ranks, strict=False)]
        return filled.take(pa.array(indices, pa.int64()))

    def drain(array: pa.Array) -> list[bytes]:
        if not array.null_count:
            return column.drain(array)
        values = iter(column.drain(array.drop_null()))
        absent = array.is_null().to_pylist()
        return [NO_VALUE if null else next(values) for null in absent]

    return ValueColumn(column.arrow, fill, drain)


_BASIC_ARROW: dict[BasicType, pa.DataType] = {
    BasicType.BOOLEAN: pa.bool_(),
    BasicType.BYTE: pa.int8(),
    BasicType.SHORT: pa.int16(),
    BasicType.INT: pa.int32(),
    BasicType.LONG: pa.int64(),
    BasicType.FLOAT: pa.float32(),
    BasicType.DOUBLE: pa.float64(),
}
_SQL_TIME_ARROW: dict[SqlTimeType, pa.DataType] = {
    SqlTimeType.DATE: pa.date32(),
    SqlTimeType.TIME: pa.time64("us"),
    SqlTimeType.TIMESTAMP: pa.timestamp("us"),
}


def column_of(type_info: TypeInformation) -> Column:
    """Return the column for values of a type."""
    match type_info:
        case BasicTypeInfo(BasicType.STRING | BasicType.CHAR):
            return Column(pa.string(), _fill_texts, _drain_plain)
        case BasicTypeInfo(BasicType.BIG_INT):
            return _texts(_digits_of, _big_int_of)
        case BasicTypeInfo(BasicType.BIG_DEC):
            return _texts(str, str)
        case BasicTypeInfo(BasicType.INSTANT):
            number = _scalar(pa.int64())
            return _struct(["seconds", "nanos"], [number, number])
        case BasicTypeInfo(kind):
            return _scalar(_BASIC_ARROW[kind])
        case SqlTimeTypeInfo(time_kind):
            return _scalar(_SQL_TIME_ARROW[time_kind])
        case PickledBytesTypeInfo() | PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE)):
            return _scalar(pa.binary())
        case TupleTypeInfo(field_types):
            names = [f"f{position}" for position in range(len(field_types))]
            return _struct(names, list(map(column_of, field_types)))
        case RowTypeInfo(field_types, field_names):
            names = _distinct([_ROW_KIND, *field_names])
            return _struct(names, [_row_kinds(), *map(column_of, field_types)])
        case (
            ListTypeInfo(element)
            | PrimitiveArrayTypeInfo(element)
            | BasicArrayTypeInfo(element)
            | ObjectArrayTypeInfo(element)
        ):
            return _list(column_of(element))
        case MapTypeInfo(key, value):
            return _map(column_of(key), column_of(value), wire_of(type_info).to_wire is None)
    message = f"penstock has no column for {type_info!r}"
    raise TypeError(message)


def _scalar(arrow: pa.DataType) -> Column:
    return Column(arrow, lambda values: pa.array(values, arrow), _drain_plain)


def _drain_plain(array: pa.Array) -> list[Any]:
    quick = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if quick and not array.null_count:
        numbers: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        return numbers
    values: list[Any] = array.to_pylist()
    return values


def _fill_texts(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        # Only keys may hold lone surrogates, and their column is there to be looked at.
        return pa.array([None if value is None else _plain_text(value) for value in values])


def _plain_text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _texts(to_text: Callable[[Any], str], from_text: Callable[[str], Any]) -> Column:
    def fill(values: Sequence[Any]) -> pa.Array:
        return pa.array([None if v is None else to_text(v) for v in values], pa.string())

    def drain(array: pa.Array) -> list[Any]:
        return [None if text is None else from_text(text) for text in array.to_pylist()]

    return Column(pa.string(), fill, drain)


def _digits_of(data: bytes) -> str:
    number = int.from_bytes(data, "big", signed=True)
    return str(number) if number.bit_length() < _LONGEST_DECIMAL_BITS else hex(number)


def _big_int_of(text: str) -> bytes:
    number = int(text, 0)
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _row_kinds() -> Column:
    """Return the column of a row's kind: null for the usual one."""
    symbols = {kind.value: str(kind) for kind in RowKind if kind is not RowKind.INSERT}
    values = {symbol: value for value, symbol in symbols.items()}

    def fill(kinds: Sequence[Any]) -> pa.Array:
        return pa.array(list(map(symbols.get, kinds)), pa.string())

    def drain(array: pa.Array) -> list[Any]:
        if array.null_count == len(array):
            return [RowKind.INSERT.value] * len(array)
        return [values.get(symbol, RowKind.INSERT.value) for symbol in array.to_pylist()]

    return Column(pa.string(), fill, drain)


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names that Arrow takes; only their order counts when they are read back."""
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

    def fill(values: Sequence[Any]) -> pa.Array:
        absent = [value is None for value in values]
        mask = pa.array(absent, pa.bool_()) if any(absent) else None
        if mask is not None:
            values = [nothing if value is None else value for value in values]
        parts = list(zip(*values, strict=True)) if values else [()] * len(columns)
        arrays = [column.fill(part) for column, part in zip(columns, parts, strict=True)]
        arrays += [pa.nulls(len(values), field.type) for field in padding]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)

    def drain(array: pa.Array) -> list[Any]:
        if not columns:
            values: list[Any] = [()] * len(array)
        else:
            parts = zip(columns, array.flatten(), strict=True)
            values = list(zip(*[column.drain(part) for column, part in parts], strict=True))
        return _with_nulls(array, values)

    return Column(pa.struct(fields), fill, drain)


def _list(element: Column) -> Column:
    arrow = pa.list_(element.arrow)

    def fill(values: Sequence[Any]) -> pa.Array:
        offsets, mask = _offsets(values)
        inside = element.fill(list(chain.from_iterable(value or () for value in values)))
        return pa.ListArray.from_arrays(offsets, inside, type=arrow, mask=mask)

    def drain(array: pa.Array) -> list[Any]:
        inside = element.drain(array.values)
        return _with_nulls(array, [inside[start:stop] for start, stop in _bounds(array)])

    return Column(arrow, fill, drain)


def _map(key: Column, value: Column, as_dict: bool) -> Column:
    """Return the column of a map, whose wire form is a dict or a list of pairs."""
    arrow = pa.map_(key.arrow, value.arrow)

    def fill(mappings: Sequence[Any]) -> pa.Array:
        offsets, mask = _offsets(mappings)
        pairs = [m.items() if as_dict else m for m in mappings if m]
        flat = list(chain.from_iterable(pairs))
        keys, values = key.fill([k for k, _ in flat]), value.fill([v for _, v in flat])
        return pa.MapArray.from_arrays(offsets, keys, values, type=arrow, mask=mask)

    def drain(array: pa.Array) -> list[Any]:
        flat = list(zip(key.drain(array.keys), value.drain(array.items), strict=True))
        pairs = [flat[start:stop] for start, stop in _bounds(array)]
        return _with_nulls(array, list(map(dict, pairs)) if as_dict else pairs)

    return Column(arrow, fill, drain)


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
