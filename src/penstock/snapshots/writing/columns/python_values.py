"""Values of Arrow columns as the Python values that a declared type accepts.

A column may be as a savepoint has it, or as Spark has it: an instant as a timestamp or a struct, a
tuple as a struct or an array, a number of any size as text, decimal or integer.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NoReturn

from penstock.common.row import Row, RowKind
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
from penstock.savepoint.columns import ROW_KIND
from penstock.types.traversal import TypeVisitor, identity, or_none

FromColumn = Callable[[Any], Any]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_KINDS = {str(kind): kind for kind in RowKind}


def from_column(type_info: TypeInformation) -> FromColumn:
    """Return the conversion of what `to_pylist` gives to values of a type.

    It raises ValueError, TypeError or the like for what cannot be one; coercion checks the rest.

    Raises:
        TypeError: the type contains pickled values, which no column can hold.
    """
    return _FromColumns().visit(type_info)


class _FromColumns(TypeVisitor[FromColumn]):
    def nullable(self, result: FromColumn) -> FromColumn:
        return or_none(result)

    def visit_basic(self, type_info: BasicTypeInfo) -> FromColumn:
        match type_info.kind:
            case BasicType.BIG_INT:
                return _big_int
            case BasicType.BIG_DEC:
                return _decimal
            case BasicType.INSTANT:
                return _instant
        return identity

    def visit_sql_time(self, type_info: SqlTimeTypeInfo) -> FromColumn:
        return _time if type_info.kind is SqlTimeType.TIME else identity

    def visit_bytes(self, type_info: TypeInformation) -> FromColumn:
        return identity

    def visit_pickled(self, type_info: TypeInformation) -> NoReturn:
        self.unsupported(type_info)

    def visit_array(self, element: FromColumn, type_info: TypeInformation) -> FromColumn:
        return identity if element is identity else lambda values: list(map(element, values))

    def visit_map(self, key: FromColumn, value: FromColumn, type_info: MapTypeInfo) -> FromColumn:
        return lambda pairs: {key(k): value(v) for k, v in _pairs(pairs)}

    def visit_tuple(self, fields: list[FromColumn], type_info: TupleTypeInfo) -> FromColumn:
        def convert(given: Any) -> tuple[Any, ...]:
            items = given.values() if isinstance(given, Mapping) else given
            return tuple([field(item) for field, item in zip(fields, items, strict=True)])

        return convert

    def visit_row(self, fields: list[FromColumn], type_info: RowTypeInfo) -> FromColumn:
        names = type_info.get_field_names()

        def convert(given: Any) -> Row:
            kind = given.get(ROW_KIND) if ROW_KIND not in names else None
            row = Row(*[field(given[name]) for field, name in zip(fields, names, strict=True)])
            row.set_field_names(list(names))
            if kind is not None:
                row.set_row_kind(_KINDS[kind])
            return row

        return convert

    def unsupported(self, type_info: TypeInformation) -> NoReturn:
        message = f"no column can hold values of {type_info!r}: declare a type for them"
        raise TypeError(message)


def _pairs(given: Any) -> Any:
    return given.items() if isinstance(given, Mapping) else given


def _big_int(value: Any) -> int:
    if isinstance(value, str):
        return int(value, 0)
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    if isinstance(value, int):
        return value
    raise ValueError(value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, str | int | Decimal) and not isinstance(value, bool):
        return Decimal(value)
    raise ValueError(value)


def _instant(value: Any) -> Instant:
    if isinstance(value, Mapping):
        return Instant(value["seconds"], value["nanos"])
    if value.tzinfo is None:
        raise ValueError(value)
    seconds, micros = divmod((value - _EPOCH) // _MICROSECOND, 1_000_000)
    return Instant(seconds, micros * 1_000)


def _time(value: Any) -> Any:
    return datetime.time.fromisoformat(value) if isinstance(value, str) else value
