"""Declared types as Arrow types, and values as what Arrow takes and gives.

``flat_type`` is what records and states are in memory: basic types, and flat rows and tuples of
them. ``arrow_type`` is what a file of a columnar format has, for every type but pickled objects and
numbers of any size. What a savepoint writes differs from that for exactness: see
`penstock.savepoint.columns`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import types as kinds

from penstock.common.row import Row
from penstock.common.time import Instant
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    SqlTimeType,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from penstock.errors import InvalidJobError
from penstock.types.traversal import (
    Convert,
    TypeVisitor,
    element_type,
    field_names,
    identity,
    is_bytes,
    or_none,
)

BASIC: dict[BasicType, pa.DataType] = {
    BasicType.STRING: pa.string(),
    BasicType.BOOLEAN: pa.bool_(),
    BasicType.BYTE: pa.int8(),
    BasicType.SHORT: pa.int16(),
    BasicType.INT: pa.int32(),
    BasicType.LONG: pa.int64(),
    BasicType.FLOAT: pa.float32(),
    BasicType.DOUBLE: pa.float64(),
}
SQL_TIME: dict[SqlTimeType, pa.DataType] = {
    SqlTimeType.DATE: pa.date32(),
    SqlTimeType.TIME: pa.time64("us"),
    SqlTimeType.TIMESTAMP: pa.timestamp("us"),
}
_IN_FILES = {
    **BASIC,
    BasicType.CHAR: pa.string(),
    BasicType.BIG_DEC: pa.decimal128(38, 18),
    BasicType.INSTANT: pa.timestamp("ns", "UTC"),
}


def flat_fields(type_info: TypeInformation | None) -> list[pa.DataType] | None:
    """Return the columns of a row or tuple of basic types; None for any other type."""
    if not isinstance(type_info, (TupleTypeInfo, RowTypeInfo)) or not type_info.field_types:
        return None
    fields = [_flat(field) for field in type_info.field_types]
    return None if None in fields else fields


def flat_type(type_info: TypeInformation | None) -> pa.DataType | None:
    """Return the one column that values of a type make: of basic types, or a struct of them."""
    fields = flat_fields(type_info)
    if fields is None:
        return None if type_info is None else _flat(type_info)
    assert isinstance(type_info, (TupleTypeInfo, RowTypeInfo))
    return pa.struct(list(zip(field_names(type_info), fields, strict=True)))


def _flat(type_info: TypeInformation) -> pa.DataType | None:
    return BASIC.get(type_info.kind) if isinstance(type_info, BasicTypeInfo) else None


def arrow_schema(row_type: RowTypeInfo) -> pa.Schema:
    """Return the columns of a row type in a file; reject types that no column can hold."""
    fields = zip(row_type.field_names, row_type.field_types, strict=True)
    return pa.schema([pa.field(name, arrow_type(type_info, name)) for name, type_info in fields])


def arrow_type(type_info: TypeInformation, column: str) -> pa.DataType:
    """Return the type of a column in a file."""
    return _ColumnTypes(column).visit(type_info)


class _ColumnTypes(TypeVisitor[pa.DataType]):
    def __init__(self, column: str) -> None:
        self._column = column

    def visit_basic(self, type_info: BasicTypeInfo) -> pa.DataType:
        found = _IN_FILES.get(type_info.kind)
        return self.unsupported(type_info) if found is None else found

    def visit_sql_time(self, type_info: SqlTimeTypeInfo) -> pa.DataType:
        return SQL_TIME[type_info.kind]

    def visit_bytes(self, type_info: TypeInformation) -> pa.DataType:
        return pa.binary()

    def visit_array(self, element: pa.DataType, type_info: TypeInformation) -> pa.DataType:
        return pa.list_(element)

    def visit_map(
        self, key: pa.DataType, value: pa.DataType, type_info: MapTypeInfo
    ) -> pa.DataType:
        return pa.map_(key, value)

    def visit_tuple(self, fields: list[pa.DataType], type_info: TupleTypeInfo) -> pa.DataType:
        return pa.struct(list(zip(field_names(type_info), fields, strict=True)))

    def visit_row(self, fields: list[pa.DataType], type_info: RowTypeInfo) -> pa.DataType:
        return pa.struct(list(zip(type_info.field_names, fields, strict=True)))

    def unsupported(self, type_info: TypeInformation) -> NoReturn:
        message = (
            f"column {self._column!r}: no column can hold {type_info!r}; map it to a type such as "
            "LONG, STRING or PRIMITIVE_ARRAY(BYTE) first"
        )
        raise InvalidJobError(message)


class ToArrow(TypeVisitor[Convert | None]):
    """Returns what makes plain copies, which Arrow takes, of values of a type.

    None where values are plain as they are. ``of_instant`` turns an `Instant` into a number of the
    column's unit.
    """

    def __init__(self, of_instant: Callable[[Instant], int]) -> None:
        self._of_instant = of_instant

    def visit_leaf(self, type_info: TypeInformation) -> Convert | None:  # noqa: D102
        is_instant = type_info == BasicTypeInfo(BasicType.INSTANT)
        return or_none(self._of_instant) if is_instant else None

    def visit_array(  # noqa: D102
        self, element: Convert | None, type_info: TypeInformation
    ) -> Convert | None:
        return or_none(list if element is None else lambda values: list(map(element, values)))

    def visit_map(  # noqa: D102
        self, key: Convert | None, value: Convert | None, type_info: MapTypeInfo
    ) -> Convert | None:
        of_key, of_value = key or identity, value or identity
        return or_none(lambda d: [(of_key(k), of_value(v)) for k, v in d.items()])

    def visit_tuple(  # noqa: D102
        self, fields: list[Convert | None], type_info: TypeInformation
    ) -> Convert | None:
        converts = [field or identity for field in fields]
        return or_none(lambda row: tuple(of(v) for of, v in zip(converts, row, strict=True)))

    visit_row = visit_tuple


class FromArrow(TypeVisitor[Convert | None]):
    """Returns what makes values of a type out of what Arrow gives; None if they are the same.

    ``to_instant`` makes an `Instant` of the column's timestamp.
    """

    def __init__(self, to_instant: Callable[[Any], Instant]) -> None:
        self._to_instant = to_instant

    def visit_leaf(self, type_info: TypeInformation) -> Convert | None:  # noqa: D102
        is_instant = type_info == BasicTypeInfo(BasicType.INSTANT)
        return or_none(self._to_instant) if is_instant else None

    def visit_array(  # noqa: D102
        self, element: Convert | None, type_info: TypeInformation
    ) -> Convert | None:
        return element and or_none(lambda values: list(map(element, values)))

    def visit_map(  # noqa: D102
        self, key: Convert | None, value: Convert | None, type_info: MapTypeInfo
    ) -> Convert | None:
        of_key, of_value = key or identity, value or identity
        return or_none(lambda found: {of_key(k): of_value(v) for k, v in dict(found).items()})

    def visit_tuple(  # noqa: D102
        self, fields: list[Convert | None], type_info: TupleTypeInfo
    ) -> Convert | None:
        return _of_struct(fields, lambda *values: values)

    def visit_row(  # noqa: D102
        self, fields: list[Convert | None], type_info: RowTypeInfo
    ) -> Convert | None:
        return _of_struct(fields, Row(*type_info.field_names))


def _of_struct(fields: list[Convert | None], make: Callable[..., Any]) -> Convert:
    converts = [field or identity for field in fields]
    return or_none(
        lambda found: make(*(of(v) for of, v in zip(converts, found.values(), strict=True)))
    )


def type_to_read(found: pa.DataType, wanted: TypeInformation, field: str) -> pa.DataType:
    """Return the type to cast a column of a file to before its values are taken.

    Only among types that mean the same: text does not become a number.

    Raises:
        ValueError: if the column holds something else.
    """
    element = element_type(wanted)
    match wanted:
        case BasicTypeInfo(BasicType.BIG_DEC) if kinds.is_decimal(found):
            return found
        case BasicTypeInfo(kind) if any(same(found) for same in _SAME.get(kind, ())):
            return arrow_type(wanted, field)
        case SqlTimeTypeInfo(time_kind) if _SAME_TIME[time_kind](found):
            return arrow_type(wanted, field)
        case _ if is_bytes(wanted) and _is_binary(found):
            return pa.binary()
        case _ if element is not None and _is_list(found):
            return pa.list_(type_to_read(found.value_type, element, field))
        case MapTypeInfo(key, value) if kinds.is_map(found):
            return pa.map_(
                type_to_read(found.key_type, key, field),
                type_to_read(found.item_type, value, field),
            )
        case RowTypeInfo(types, names) if kinds.is_struct(found):
            return _struct_to_read(names, _fields_of(found, names, field), types, field)
        case TupleTypeInfo(types) if kinds.is_struct(found) and found.num_fields == len(types):
            inner = [found.field(n) for n in range(len(types))]
            return _struct_to_read(tuple(part.name for part in inner), inner, types, field)
    message = f"field {field!r} is {found}, which is no {wanted!r}"
    raise ValueError(message)


def plain_for(type_info: TypeInformation) -> Convert | None:
    """Return what makes plain copies of values for a column of a file; None if they are plain."""
    return _TO_FILE.visit(type_info)


def values_of(column: pa.Array, wanted: TypeInformation) -> list[Any]:
    """Return the values of a column that was cast as :func:`type_to_read` says."""
    plain: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    convert = _FROM_FILE.visit(wanted)
    return plain if convert is None else list(map(convert, plain))


_TO_FILE = ToArrow(lambda instant: instant.seconds * 1_000_000_000 + instant.nanos)
_FROM_FILE = FromArrow(lambda moment: Instant(*divmod(moment.value, 1_000_000_000)))


def _is_text(found: pa.DataType) -> bool:
    if kinds.is_dictionary(found):
        return _is_text(found.value_type)
    return bool(kinds.is_string(found) or kinds.is_large_string(found))


def _is_binary(found: pa.DataType) -> bool:
    return bool(
        kinds.is_binary(found) or kinds.is_large_binary(found) or kinds.is_fixed_size_binary(found)
    )


def _is_list(found: pa.DataType) -> bool:
    return bool(
        kinds.is_list(found) or kinds.is_large_list(found) or kinds.is_fixed_size_list(found)
    )


_SAME: dict[BasicType, tuple[Callable[[pa.DataType], bool], ...]] = {
    BasicType.STRING: (_is_text,),
    BasicType.CHAR: (_is_text,),
    BasicType.BOOLEAN: (kinds.is_boolean,),
    BasicType.BYTE: (kinds.is_integer,),
    BasicType.SHORT: (kinds.is_integer,),
    BasicType.INT: (kinds.is_integer,),
    BasicType.LONG: (kinds.is_integer,),
    BasicType.FLOAT: (kinds.is_float32, kinds.is_float16),
    BasicType.DOUBLE: (kinds.is_floating,),
    BasicType.INSTANT: (kinds.is_timestamp,),
}
_SAME_TIME: dict[SqlTimeType, Callable[[pa.DataType], bool]] = {
    SqlTimeType.DATE: kinds.is_date,
    SqlTimeType.TIME: kinds.is_time,
    SqlTimeType.TIMESTAMP: kinds.is_timestamp,
}


def _fields_of(found: pa.DataType, names: tuple[str, ...], field: str) -> list[pa.Field]:
    missing = [name for name in names if found.get_field_index(name) < 0]
    if missing:
        message = f"field {field!r} is {found}, which lacks {missing}"
        raise ValueError(message)
    return [found.field(name) for name in names]


def _struct_to_read(
    names: tuple[str, ...], inner: list[pa.Field], types: tuple[TypeInformation, ...], field: str
) -> pa.DataType:
    parts = zip(names, inner, types, strict=True)
    return pa.struct(
        [
            (name, type_to_read(part.type, type_info, f"{field}.{part.name}"))
            for name, part, type_info in parts
        ]
    )
