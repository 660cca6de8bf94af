"""Coerces a value to its declared type, or rejects it.

A value that the type accepts comes out in one canonical form (an ``int`` under DOUBLE becomes a
``float``, a row carries its declared names), so that a program sees the same value whether it was
read from a store or from a cache. A FLOAT is rounded to 32 bits where a record leaves a step, and
not in state, as in PyFlink. Where None is accepted says `TypeVisitor.nullable`, as in PyFlink.
"""

from __future__ import annotations

import datetime
import operator
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock.common.row import Row
from penstock.common.time import Instant
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SqlTimeType,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from penstock.errors import TypeMismatchError
from penstock.types.traversal import TypeVisitor

INTEGER_BITS = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64}

_FLOAT32 = struct.Struct(">f")

Exact = Callable[[Any], bool]
Normal = Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True)
class Coercion:
    """How values of one type are checked.

    ``exact`` tells, fast, whether a value is canonical already; ``normal`` brings any other value
    that the type accepts into canonical form and raises ``TypeMismatchError`` for the rest.
    """

    exact: Exact
    normal: Normal

    def __call__(self, value: Any, path: str = "") -> Any:
        """Return the canonical form of a value that the type accepts."""
        return value if self.exact(value) else self.normal(value, path)


def coercion_for(type_info: TypeInformation, *, rounds: bool = True) -> Coercion:
    """Return the coercion to a type; unless it ``rounds``, a FLOAT keeps all of its 64 bits."""
    return _Coercions(rounds).visit(type_info)


class _Coercions(TypeVisitor[Coercion]):
    def __init__(self, rounds: bool) -> None:
        self._rounds = rounds

    def nullable(self, result: Coercion) -> Coercion:
        exact_value, normal_value = result.exact, result.normal
        return Coercion(
            lambda value: value is None or exact_value(value),
            lambda value, path: None if value is None else normal_value(value, path),
        )

    def visit_basic(self, type_info: BasicTypeInfo) -> Coercion:
        kind = type_info.kind
        if kind in INTEGER_BITS:
            return _integer(type_info)
        match kind:
            case BasicType.FLOAT:
                return _float32(type_info, self._rounds)
            case BasicType.BIG_INT:
                return Coercion(_has_class(int), lambda value, path: _index(value, path, type_info))
            case BasicType.STRING:
                return Coercion(_has_class(str), lambda value, path: _text(value, path, type_info))
            case BasicType.CHAR:
                return _char(type_info)
            case BasicType.BOOLEAN:
                return _only(bool, type_info)
            case BasicType.DOUBLE:
                return Coercion(
                    _has_class(float), lambda value, path: _number(value, path, type_info)
                )
        return _only(Instant if kind is BasicType.INSTANT else Decimal, type_info)

    def visit_sql_time(self, type_info: SqlTimeTypeInfo) -> Coercion:
        wanted: Any = _SQL_TIME_CLASSES[type_info.kind]
        if type_info.kind is SqlTimeType.DATE:
            return _only(wanted, type_info)
        return _accepting(
            lambda value: value.__class__ is wanted and value.tzinfo is None, type_info
        )

    def visit_pickled(self, type_info: PickledBytesTypeInfo) -> Coercion:
        return Coercion(lambda _: True, lambda value, _: value)

    def visit_bytes(self, type_info: TypeInformation) -> Coercion:
        def normal(value: Any, path: str) -> bytes:
            if isinstance(value, bytes | bytearray):
                return bytes(value)
            raise TypeMismatchError(path, value, type_info)

        return Coercion(_has_class(bytes), normal)

    def visit_array(self, element: Coercion, type_info: TypeInformation) -> Coercion:
        exact_element = element.exact
        elements_exact = _elements_exact(type_info)

        def exact(value: Any) -> bool:
            if value.__class__ is not list:
                return False
            if elements_exact is not None:
                return elements_exact(value)
            return all(map(exact_element, value))

        def normal(value: Any, path: str) -> list[Any]:
            if not isinstance(value, list | tuple):
                raise TypeMismatchError(path, value, type_info)
            return [element(item, f"{path}[{position}]") for position, item in enumerate(value)]

        return Coercion(exact, normal)

    def visit_map(self, key: Coercion, value: Coercion, type_info: MapTypeInfo) -> Coercion:
        exact_key, exact_value = key.exact, value.exact

        def exact(mapping: Any) -> bool:
            return (
                mapping.__class__ is dict
                and all(map(exact_key, mapping))
                and all(map(exact_value, mapping.values()))
            )

        def normal(mapping: Any, path: str) -> dict[Any, Any]:
            if not isinstance(mapping, dict):
                raise TypeMismatchError(path, mapping, type_info)
            return {
                key(name, f"{path}[key {name!r}]"): value(item, f"{path}[{name!r}]")
                for name, item in mapping.items()
            }

        return Coercion(exact, normal)

    def visit_tuple(self, fields: list[Coercion], type_info: TupleTypeInfo) -> Coercion:
        count = len(fields)
        conditions = [_condition(field, at) for at, field in enumerate(type_info.field_types)]
        fields_exact = _compiled(conditions, fields)

        def exact(value: Any) -> bool:
            return value.__class__ is tuple and len(value) == count and fields_exact(value)

        def normal(value: Any, path: str) -> tuple[Any, ...]:
            if not isinstance(value, tuple) or len(value) != count:
                raise TypeMismatchError(path, value, type_info)
            return tuple(
                coerce(field, _below(path, f"f{position}"))
                for position, (coerce, field) in enumerate(zip(fields, value, strict=True))
            )

        return Coercion(exact, normal)

    def visit_row(self, fields: list[Coercion], type_info: RowTypeInfo) -> Coercion:
        names = type_info.get_field_names()
        count = len(names)
        conditions = [
            f"(value[{at}] is None or {_condition(field, at)})"
            for at, field in enumerate(type_info.field_types)
        ]
        fields_exact = _compiled(conditions, fields)

        def exact(value: Any) -> bool:
            return (
                value.__class__ is Row
                and getattr(value, "_fields", None) == names
                and len(value._values) == count
                and fields_exact(value._values)
            )

        def normal(value: Any, path: str) -> Row:
            values = _row_values(value, names)
            if values is None or len(values) != count:
                raise TypeMismatchError(path, value, type_info)
            parts = zip(fields, values, names, strict=True)
            row = Row(*(coerce(field, _below(path, name)) for coerce, field, name in parts))
            row.set_field_names(list(names))
            if isinstance(value, Row):
                row.set_row_kind(value.get_row_kind())
            return row

        return Coercion(exact, normal)


def _has_class(wanted: type) -> Exact:
    def exact(value: Any) -> bool:
        return value.__class__ is wanted

    return exact


def _only(wanted: type, type_info: TypeInformation) -> Coercion:
    return _accepting(_has_class(wanted), type_info)


def _accepting(exact: Exact, type_info: TypeInformation) -> Coercion:
    """Return the coercion to a type that has only canonical values."""

    def normal(value: Any, path: str) -> Any:
        if exact(value):
            return value
        raise TypeMismatchError(path, value, type_info)

    return Coercion(exact, normal)


def _integer(type_info: BasicTypeInfo) -> Coercion:
    lowest, highest = _bounds(type_info.kind)

    def exact(value: Any) -> bool:
        return value.__class__ is int and lowest <= value <= highest

    def normal(value: Any, path: str) -> int:
        number = _index(value, path, type_info)
        if lowest <= number <= highest:
            return number
        raise TypeMismatchError(path, value, type_info)

    return Coercion(exact, normal)


def _bounds(kind: BasicType) -> tuple[int, int]:
    bound = 1 << (INTEGER_BITS[kind] - 1)
    return -bound, bound - 1


def _index(value: Any, path: str, type_info: TypeInformation) -> int:
    # An object that can change in place, such as an array of no dimension, is not a number.
    if not isinstance(value, bool) and not hasattr(value, "__iadd__"):
        try:
            return int(operator.index(value))
        except TypeError:
            pass
    raise TypeMismatchError(path, value, type_info)


def _number(value: Any, path: str, type_info: TypeInformation) -> float:
    if isinstance(value, float):
        return float(value)
    try:
        return float(_index(value, path, type_info))
    except OverflowError:
        raise TypeMismatchError(path, value, type_info) from None


def _text(value: Any, path: str, type_info: TypeInformation) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeMismatchError(path, value, type_info)


def _float32(type_info: TypeInformation, rounds: bool) -> Coercion:
    def normal(value: Any, path: str) -> float:
        number = _number(value, path, type_info)
        try:
            rounded: float = _FLOAT32.unpack(_FLOAT32.pack(number))[0]
        except OverflowError:
            raise TypeMismatchError(path, value, type_info) from None
        return rounded if rounds else number

    return Coercion(lambda _: False, normal)


def _char(type_info: TypeInformation) -> Coercion:
    def normal(value: Any, path: str) -> str:
        text = _text(value, path, type_info)
        if len(text) == 1:
            return text
        raise TypeMismatchError(path, value, type_info)

    return Coercion(lambda value: value.__class__ is str and len(value) == 1, normal)


_SQL_TIME_CLASSES: dict[SqlTimeType, type] = {
    SqlTimeType.DATE: datetime.date,
    SqlTimeType.TIME: datetime.time,
    SqlTimeType.TIMESTAMP: datetime.datetime,
}

_CLASSES: dict[BasicType, type] = {
    BasicType.STRING: str,
    BasicType.BOOLEAN: bool,
    BasicType.DOUBLE: float,
    BasicType.BIG_INT: int,
}


def _condition(type_info: TypeInformation, at: int) -> str:
    """Return an expression that tells whether field ``at`` of ``value`` is exact."""
    if isinstance(type_info, BasicTypeInfo):
        if type_info.kind in INTEGER_BITS:
            lowest, highest = _bounds(type_info.kind)
            return f"(value[{at}].__class__ is int and {lowest} <= value[{at}] <= {highest})"
        if type_info.kind in _CLASSES:
            return f"value[{at}].__class__ is {_CLASSES[type_info.kind].__name__}"
    return f"exacts[{at}](value[{at}])"


def _compiled(conditions: list[str], fields: list[Coercion]) -> Exact:
    # A loop over the fields takes five times as long, and this runs on every write.
    expression = " and ".join(conditions) or "True"
    exacts = [field.exact for field in fields]
    exact: Exact = eval(f"lambda value: {expression}", {"exacts": exacts})
    return exact


def _elements_exact(array: TypeInformation) -> Exact | None:
    """Return a check of all elements at once, for types where that is quicker."""
    if not isinstance(array, ListTypeInfo | PrimitiveArrayTypeInfo):
        return None
    element = array.element
    if not isinstance(element, BasicTypeInfo):
        return None
    if element.kind in INTEGER_BITS:
        lowest, highest = _bounds(element.kind)
        return lambda values: (
            not values
            or (
                set(map(type, values)) == {int} and lowest <= min(values) and max(values) <= highest
            )
        )
    wanted = _CLASSES.get(element.kind)
    return None if wanted is None else lambda values: set(map(type, values)) <= {wanted}


def _row_values(value: Any, names: list[str]) -> Any:
    if isinstance(value, tuple):
        return value
    if not isinstance(value, Row):
        return None
    try:
        return value.get_fields_by_names(names)
    except ValueError:
        return None


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
