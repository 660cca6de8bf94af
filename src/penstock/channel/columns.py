"""Records as Arrow columns and back.

Declared types give their columns; records without a declared type are looked at, and those
that are all text, all numbers, or all flat tuples of such travel as columns too. Anything
else is pickled record by record.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.common import pickling
from penstock.common.row import Row, RowKind, rows_of
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from penstock.state.serializers import edge_serializer_for


class Layout(Enum):
    """How a segment's columns make up its records."""

    SCALAR = "scalar"
    TUPLE = "tuple"
    ROW = "row"
    PICKLE = "pickle"
    TYPED = "typed"
    KEY = "key"
    """No columns: every record is its own key."""
    TEXT_KEY = "text key"
    """The same, and the keys are plain texts."""


_ARROW: dict[BasicType, tuple[pa.DataType, frozenset[type]]] = {
    BasicType.STRING: (pa.string(), frozenset({str})),
    BasicType.BOOLEAN: (pa.bool_(), frozenset({bool})),
    BasicType.BYTE: (pa.int8(), frozenset({int})),
    BasicType.SHORT: (pa.int16(), frozenset({int})),
    BasicType.INT: (pa.int32(), frozenset({int})),
    BasicType.LONG: (pa.int64(), frozenset({int})),
    BasicType.FLOAT: (pa.float32(), frozenset({float, int})),
    BasicType.DOUBLE: (pa.float64(), frozenset({float, int})),
}

_LOOKED_AT: dict[type, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}

Columns = tuple[Layout, list[pa.Array]]


def encoder_for(type_info: TypeInformation | None) -> Callable[[Sequence[Any]], Columns]:
    """Return the function that turns a list of such records into columns.

    It raises TypeMismatchError for the first record that does not fit.
    """
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return _encode_looking
    if isinstance(type_info, BasicTypeInfo) and type_info.kind in _ARROW:
        arrow, allowed = _ARROW[type_info.kind]
        return _checked(
            type_info, lambda records: (Layout.SCALAR, [_column(records, arrow, allowed)])
        )
    fields = _flat_fields(type_info)
    if fields is not None:
        layout = Layout.ROW if isinstance(type_info, RowTypeInfo) else Layout.TUPLE
        names = type_info.get_field_names() if isinstance(type_info, RowTypeInfo) else []
        return _checked(type_info, _record_encoder(layout, fields, names))
    encode = edge_serializer_for(type_info).encode
    return lambda records: (Layout.TYPED, [pa.array(list(map(encode, records)), pa.binary())])


def decoder_for(
    type_info: TypeInformation | None,
) -> Callable[[Layout, Sequence[pa.Array]], list[Any]]:
    """Return the function that turns columns back into records."""

    def decode(layout: Layout, columns: Sequence[pa.Array]) -> list[Any]:
        if layout is Layout.SCALAR:
            return columns[0].to_pylist()  # type: ignore[no-any-return]
        if layout is Layout.TUPLE:
            return list(zip(*(c.to_pylist() for c in columns), strict=True))
        if layout is Layout.ROW:
            assert isinstance(type_info, RowTypeInfo)
            return rows_of(type_info.field_names, [c.to_pylist() for c in columns])
        decode_one = (
            pickling.loads if layout is Layout.PICKLE else edge_serializer_for(type_info).decode
        )
        return list(map(decode_one, columns[0].to_pylist()))

    return decode


def column_type(type_info: TypeInformation | None) -> pa.DataType | None:
    """Return the type of one column of such records, None if they do not fit into one as such.

    Flat rows and tuples make a struct of their fields.
    """
    if isinstance(type_info, BasicTypeInfo):
        return _ARROW[type_info.kind][0] if type_info.kind in _ARROW else None
    fields = None if type_info is None else _flat_fields(type_info)
    if fields is None:
        return None
    names = [f"f{i}" for i in range(len(fields))]
    if isinstance(type_info, RowTypeInfo):
        names = type_info.get_field_names()
    return pa.struct([(name, arrow) for name, (arrow, _) in zip(names, fields, strict=True)])


def _flat_fields(
    type_info: TypeInformation,
) -> list[tuple[pa.DataType, frozenset[type]]] | None:
    if not isinstance(type_info, (TupleTypeInfo, RowTypeInfo)) or not type_info.field_types:
        return None
    fields = []
    for field in type_info.field_types:
        if not (isinstance(field, BasicTypeInfo) and field.kind in _ARROW):
            return None
        arrow, allowed = _ARROW[field.kind]
        if isinstance(type_info, RowTypeInfo):
            allowed = allowed | {type(None)}
        fields.append((arrow, allowed))
    return fields


def _record_encoder(
    layout: Layout, fields: list[tuple[pa.DataType, frozenset[type]]], names: list[str]
) -> Callable[[Sequence[Any]], Columns]:
    shapes = {Row, tuple} if layout is Layout.ROW else {tuple}

    def encode(records: Sequence[Any]) -> Columns:
        kinds = set(map(type, records))
        if not kinds <= shapes or set(map(len, records)) != {len(fields)}:
            raise _Unfit
        if Row in kinds and not all(_is_plain(r, names) for r in records if type(r) is Row):
            raise _Unfit
        columns: Iterable[Sequence[Any]] = (
            zip(*records, strict=True) if Row in kinds else _by_column(records, len(fields))
        )
        return layout, [
            _column(values, arrow, allowed)
            for values, (arrow, allowed) in zip(columns, fields, strict=True)
        ]

    return encode


def _by_column(records: Sequence[tuple[Any, ...]], width: int) -> Iterator[list[Any]]:
    """Return the items of tuples, place by place; zip() would make an iterator of every record."""
    return (list(map(operator.itemgetter(at), records)) for at in range(width))


def _is_plain(row: Row, names: list[str]) -> bool:
    """Say whether positions alone tell all about a row."""
    return row._row_kind is RowKind.INSERT and getattr(row, "_fields", names) == names


class _Unfit(Exception):
    """Some record of the chunk does not fit; which one is found out record by record."""


def _column(values: Sequence[Any], arrow: pa.DataType, allowed: frozenset[type]) -> pa.Array:
    if not set(map(type, values)) <= allowed:
        raise _Unfit
    try:
        column = pa.array(values, arrow)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
        raise _Unfit from error
    # Arrow makes an infinity of what 32 bits cannot hold.
    if arrow == pa.float32() and np.isinf(column.to_numpy(zero_copy_only=False)).any():
        raise _Unfit
    return column


def _checked(
    type_info: TypeInformation, encode: Callable[[Sequence[Any]], Columns]
) -> Callable[[Sequence[Any]], Columns]:
    def checked(records: Sequence[Any]) -> Columns:
        if not records:
            return Layout.TYPED, [pa.array([], pa.binary())]
        try:
            return encode(records)
        except _Unfit:
            serializer = edge_serializer_for(type_info)
            # Raises for the record at fault; a subclass of str or the like passes, slowly.
            encoded = list(map(serializer.encode, records))
            return Layout.TYPED, [pa.array(encoded, pa.binary())]

    return checked


def _encode_looking(records: Sequence[Any]) -> Columns:
    kinds = set(map(type, records))
    if len(kinds) == 1:
        kind = kinds.pop()
        if kind in _LOOKED_AT:
            column = _looked_at(records)
            if column is not None:
                return Layout.SCALAR, [column]
        elif kind is tuple:
            columns = _looked_at_tuples(records)
            if columns is not None:
                return Layout.TUPLE, columns
    return Layout.PICKLE, [pa.array(list(map(pickling.dumps, records)), pa.binary())]


def _looked_at(values: Sequence[Any]) -> pa.Array | None:
    kinds = set(map(type, values))
    arrow = _LOOKED_AT.get(kinds.pop()) if len(kinds) == 1 else None
    if arrow is None:
        return None
    try:
        return pa.array(values, arrow)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None  # an int beyond 64 bits, a lone surrogate


def _looked_at_tuples(records: Sequence[Any]) -> list[pa.Array] | None:
    lengths = set(map(len, records))
    if len(lengths) != 1 or 0 in lengths:
        return None
    columns = []
    for values in _by_column(records, lengths.pop()):
        column = _looked_at(values)
        if column is None:
            return None
        columns.append(column)
    return columns
