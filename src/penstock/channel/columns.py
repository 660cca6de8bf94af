"""Encodes records as Arrow columns, and decodes them.

A declared type determines the columns. For records without one they are inferred: records that are
all texts, all numbers, or all flat tuples of such become columns too. Anything else is pickled
record by record.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.common import pickling
from penstock.common.row import Row, RowKind, rows_of
from penstock.common.typeinfo import PickledBytesTypeInfo, RowTypeInfo, TypeInformation
from penstock.errors import UnexpectedPickleError
from penstock.types.arrow import flat_fields, flat_type
from penstock.types.serializers import edge_serializer_for


class RecordLayout(Enum):
    """How the columns of a segment make up its records; the values are part of segment files."""

    SCALAR = "scalar"
    TUPLE = "tuple"
    ROW = "row"
    PICKLE = "pickle"
    TYPED = "typed"
    KEY = "key"
    """No columns: every record is its own key."""
    TEXT_KEY = "text key"
    """The same, and the keys are plain texts."""


_INFERRED: dict[type | None, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}

Columns = tuple[RecordLayout, list[pa.Array]]


def encoder_for(type_info: TypeInformation | None) -> Callable[[Sequence[Any]], Columns]:
    """Return the function that encodes records of a type as columns.

    It raises TypeMismatchError for the first record that does not fit the type.
    """
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return _encode_inferred
    to_columns = _column_encoder(type_info)
    encode_one = None if to_columns else edge_serializer_for(type_info).encode

    def encode(records: Sequence[Any]) -> Columns:
        if to_columns is not None and records:
            with suppress(_Unfit):
                return to_columns(records)
        # Raises for the record at fault; values like a subclass of str pass, but slowly.
        encode = encode_one or edge_serializer_for(type_info).encode
        return RecordLayout.TYPED, [pa.array(list(map(encode, records)), pa.binary())]

    return encode


def decoder_for(
    type_info: TypeInformation | None,
) -> Callable[[RecordLayout, Sequence[pa.Array]], list[Any]]:
    """Return the function that decodes columns into records.

    It raises UnexpectedPickleError for pickled records of a declared type: this job's own tasks do
    not write any.
    """
    is_declared = not (type_info is None or isinstance(type_info, PickledBytesTypeInfo))

    def decode(layout: RecordLayout, columns: Sequence[pa.Array]) -> list[Any]:
        if layout is RecordLayout.SCALAR:
            return columns[0].to_pylist()  # type: ignore[no-any-return]
        if layout is RecordLayout.TUPLE:
            return list(zip(*(c.to_pylist() for c in columns), strict=True))
        if layout is RecordLayout.ROW:
            assert isinstance(type_info, RowTypeInfo)
            return rows_of(type_info.field_names, [c.to_pylist() for c in columns])
        if layout is RecordLayout.PICKLE:
            if is_declared:
                raise UnexpectedPickleError(type_info)
            return list(map(pickling.loads, columns[0].to_pylist()))
        return list(map(edge_serializer_for(type_info).decode, columns[0].to_pylist()))

    return decode


def _classes(arrow: pa.DataType, *, nullable: bool = False) -> frozenset[type]:
    """Return the classes of values that go into a column as they are."""
    if pa.types.is_floating(arrow):
        classes: set[type] = {float, int}
    else:
        classes = {str if arrow == pa.string() else bool if arrow == pa.bool_() else int}
    return frozenset(classes | {type(None)} if nullable else classes)


def _column_encoder(type_info: TypeInformation) -> Callable[[Sequence[Any]], Columns] | None:
    """Return the encoder of basic types and flat rows and tuples; it raises `_Unfit`."""
    types, scalar = flat_fields(type_info), flat_type(type_info)
    if types is None:
        if scalar is None:
            return None
        allowed = _classes(scalar)
        return lambda records: (RecordLayout.SCALAR, [_column(records, scalar, allowed)])
    is_row = isinstance(type_info, RowTypeInfo)
    names = type_info.get_field_names() if isinstance(type_info, RowTypeInfo) else []
    layout = RecordLayout.ROW if is_row else RecordLayout.TUPLE
    shapes = {Row, tuple} if is_row else {tuple}
    fields = [(arrow, _classes(arrow, nullable=is_row)) for arrow in types]

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
    """Return the items of tuples by column; zip() would create an iterator for every record."""
    return (list(map(operator.itemgetter(at), records)) for at in range(width))


def _is_plain(row: Row, names: list[str]) -> bool:
    """Return whether the values in order are all there is to a row."""
    return row._row_kind is RowKind.INSERT and getattr(row, "_fields", names) == names


class _Unfit(Exception):
    """Some record of a chunk does not fit; the serializer finds out which one."""


def _column(values: Sequence[Any], arrow: pa.DataType, allowed: frozenset[type]) -> pa.Array:
    if not set(map(type, values)) <= allowed:
        raise _Unfit
    try:
        column = pa.array(values, arrow)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
        raise _Unfit from error
    # Arrow turns values that 32 bits cannot hold into infinities.
    if arrow == pa.float32() and np.isinf(column.to_numpy(zero_copy_only=False)).any():
        raise _Unfit
    return column


def _encode_inferred(records: Sequence[Any]) -> Columns:
    kinds = set(map(type, records))
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind in _INFERRED and (column := exact_column(records, _INFERRED[kind])) is not None:
        return RecordLayout.SCALAR, [column]
    if kind is tuple and (columns := _inferred_tuples(records)) is not None:
        return RecordLayout.TUPLE, columns
    return RecordLayout.PICKLE, [pa.array(list(map(pickling.dumps, records)), pa.binary())]


def _inferred_tuples(records: Sequence[Any]) -> list[pa.Array] | None:
    lengths = set(map(len, records))
    if len(lengths) != 1 or 0 in lengths:
        return None
    columns = []
    for values in _by_column(records, lengths.pop()):
        kinds = set(map(type, values))
        arrow = _INFERRED.get(kinds.pop()) if len(kinds) == 1 else None
        column = None if arrow is None else exact_column(values, arrow)
        if column is None:
            return None
        columns.append(column)
    return columns


def exact_column(values: Sequence[Any], arrow: pa.DataType) -> pa.Array | None:
    """Return values as a column; None for an int beyond 64 bits or a lone surrogate."""
    try:
        return pa.array(values, arrow)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None
