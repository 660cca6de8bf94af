"""Columns of values as a state stores them.

Where the Arrow type of the values is that of the savepoint's column, or safely becomes it, they are
checked and converted all at once. All others are converted one by one, through the serializer that
a program uses for the state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from penstock.savepoint.columns import ROW_KIND, column_of, value_column
from penstock.snapshots.writing.bad_values import NOT_OF_TYPE, BadValue, convert_each
from penstock.snapshots.writing.columns.python_values import from_column
from penstock.state.registry.meta_info import (
    LIST_STATE,
    MAP_STATE,
    NO_VALUE,
    RAW_STATE,
    StateMetaInfo,
)
from penstock.types.arrow import BASIC
from penstock.types.coercion import INTEGER_BITS
from penstock.types.serializers import serializer_for
from penstock.types.signature import PICKLED, parse_signature
from penstock.types.traversal import is_bytes

_NULL = "it is null"
_EMPTY = "it is an empty list: leave such keys out"

Direct = Callable[[pa.Array], pa.Array | None]
"""Converts a whole column; None if some value has to be looked at by itself."""


class ValueEncoder:
    """Converts a column into the savepoint's column of a state without a time-to-live."""

    def __init__(self, info: StateMetaInfo) -> None:
        type_info = value_type(info)
        self._column = value_column(info.kind, info.type)
        self.arrow: pa.DataType = self._column.arrow
        self._may_be_null = info.kind == MAP_STATE
        self._is_list = info.kind == LIST_STATE
        self._type_info = type_info
        self._is_pickled = isinstance(type_info, PickledBytesTypeInfo)
        self._is_raw = info.kind == RAW_STATE
        # Inside a value that is pickled bytes stay as they are: nothing is unpickled here.
        self._has_pickled = not self._is_pickled and PICKLED in info.type
        self._encode = _as_bytes if self._has_pickled else _encoder(type_info, info)

    def encode(self, column: pa.Array) -> tuple[pa.Array, list[BadValue]]:
        """Return the values as a savepoint has them, and those that the state cannot hold.

        A refused value is null in the result.
        """
        direct = self._direct(column)
        if direct is not None:
            return direct, []
        stored, bad = self.stored(column)
        refused = [data is None for data in stored]
        if not any(refused):
            return self._column.to_arrow(stored), []
        present = self._column.to_arrow([data for data in stored if data is not None])
        taken, index = [], 0
        for is_refused in refused:
            taken.append(None if is_refused else index)
            index += not is_refused
        return present.take(pa.array(taken, pa.int64())), bad

    def stored(self, column: pa.Array) -> tuple[list[bytes | None], list[BadValue]]:
        """Return the stored bytes of values, None for those that are refused."""
        if self._has_pickled:
            return self._stored_as_they_are(column)
        values = column.to_pylist()
        converted, bad = convert_each(values, self._encode)
        return converted, [BadValue(b.row, _reason(values[b.row], b.reason)) for b in bad]

    def _stored_as_they_are(self, column: pa.Array) -> tuple[list[bytes | None], list[BadValue]]:
        if column.null_count and not self._may_be_null:
            nulls = column.is_null().to_pylist()
            bad = [BadValue(row, _NULL) for row, is_null in enumerate(nulls) if is_null]
            found = iter(self._stored_as_they_are(column.drop_null())[0])
            return [None if is_null else next(found) for is_null in nulls], bad
        try:
            return list(self._column.from_arrow(column.cast(self.arrow))), []
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, ValueError):
            bad = [BadValue(row, NOT_OF_TYPE) for row in range(len(column))]
            return [None] * len(column), bad

    def _direct(self, column: pa.Array) -> pa.Array | None:
        if self._is_list or (column.null_count and not self._may_be_null):
            return None
        if self._is_raw or self._is_pickled:
            return column if column.type == pa.binary() else None
        direct = _direct(self._type_info, column.type)
        return None if direct is None else direct(column)


def value_type(info: StateMetaInfo) -> TypeInformation:
    """Return the type of one stored value: in a map state, that of the map's values."""
    type_info = parse_signature(info.type)
    if info.kind == MAP_STATE:
        assert isinstance(type_info, MapTypeInfo)
        return type_info.value
    return type_info


def _reason(value: Any, reason: str) -> str:
    if value is None:
        return _NULL
    return _EMPTY if value == [] else reason


def _encoder(type_info: TypeInformation, info: StateMetaInfo) -> Callable[[Any], bytes]:
    may_be_null, is_list = info.kind == MAP_STATE, info.kind == LIST_STATE

    def checked(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        def encode_one(value: Any) -> bytes:
            if value is None:
                if may_be_null:
                    return NO_VALUE
                raise ValueError(_NULL)
            if is_list and not value:
                raise ValueError(_EMPTY)
            return encode(value)

        return encode_one

    if info.kind == RAW_STATE or isinstance(type_info, PickledBytesTypeInfo):
        return checked(_as_bytes)
    convert, serialize = from_column(type_info), serializer_for(type_info).encode
    return checked(lambda value: serialize(convert(value)))


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    raise TypeError(value)


def _direct(type_info: TypeInformation, source: pa.DataType) -> Direct | None:
    """Return the conversion of a column whose values may be null, None if there is none."""
    match type_info:
        case BasicTypeInfo(kind):
            return _direct_basic(kind, source)
        case TupleTypeInfo(types):
            return _direct_struct(type_info, types, list(range(len(types))), source, kinds=False)
        case RowTypeInfo(types):
            names = type_info.get_field_names()
            if ROW_KIND in names or not pa.types.is_struct(source):
                return None
            places = [source.get_field_index(name) for name in names]
            if -1 in places or source.get_field_index(ROW_KIND) != -1:
                return None
            return _direct_struct(type_info, types, places, source, kinds=True)
    if is_bytes(type_info):
        return _same if source == pa.binary() else None
    return None


def _direct_basic(kind: BasicType, source: pa.DataType) -> Direct | None:
    if kind not in BASIC:
        return None
    target = BASIC[kind]
    if source == target:
        return _same
    narrows = kind in INTEGER_BITS and pa.types.is_signed_integer(source)
    if narrows or (kind is BasicType.DOUBLE and source == pa.float32()):
        return lambda column: _cast(column, target)
    return None


def _direct_struct(
    type_info: TypeInformation,
    types: Any,
    places: list[int],
    source: pa.DataType,
    *,
    kinds: bool,
) -> Direct | None:
    if not pa.types.is_struct(source) or not types or source.num_fields != len(types):
        return None
    inner = [_direct(t, source.field(at).type) for t, at in zip(types, places, strict=True)]
    if None in inner:
        return None
    target = column_of(type_info).arrow
    fields = [target.field(number) for number in range(target.num_fields)]

    def convert(column: pa.StructArray) -> pa.Array | None:
        if column.null_count:
            return None
        flat = column.flatten()
        parts = []
        for field, at in zip(inner, places, strict=True):
            assert field is not None
            # A row's field may be null, that of a tuple may not.
            part = None if flat[at].null_count and not kinds else field(flat[at])
            if part is None:
                return None
            parts.append(part)
        if kinds:
            parts.insert(0, pa.nulls(len(column), fields[0].type))
        return pa.StructArray.from_arrays(parts, fields=fields)

    return convert


def _cast(column: pa.Array, target: pa.DataType) -> pa.Array | None:
    try:
        return column.cast(target)
    except pa.ArrowInvalid:
        return None


def _same(column: pa.Array) -> pa.Array:
    return column
