"""Fit a value to its declared type, or refuse it.

A value that fits comes out in one canonical form (an ``int`` under DOUBLE becomes a ``float``, a
row carries its declared names), so that a program sees the same value whether it was read back from
a store or from a cache. A FLOAT is rounded to 32 bits where a record leaves a step, and not in
state, as in PyFlink. ``None`` fits a ROW's field, a MAP's value and an element of a BASIC or OBJECT
array; it fits no TUPLE field, LIST element or primitive, as in PyFlink.
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
from penstock.errors import TypeMismatchError

__all__ = ["INTEGER_BITS", "Fit", "fit_for"]

INTEGER_BITS = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64}

_FLOAT32 = struct.Struct(">f")

Exact = Callable[[Any], bool]
Normal = Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True)
class Fit:
    """How values of one type are checked.

    ``exact`` is the fast question whether a value is canonical already; ``normal`` brings any
    other value that fits into canonical form and raises ``TypeMismatchError`` for the rest.
    """

    exact: Exact
    normal: Normal

    def __call__(self, value: Any, path: str = "") -> Any:
        """Return the canonical form of a value that fits."""
        return value if self.exact(value) else self.normal(value, path)


def fit_for(type_info: TypeInformation, *, rounds: bool = True) -> Fit:
    """Return the check for a type; unless it `rounds`, a FLOAT keeps all of its 64 bits."""
    match type_info:
        case BasicTypeInfo(BasicType.FLOAT):
            return _float32(type_info, rounds)
        case BasicTypeInfo(kind):
            return _basic(kind, type_info)
        case SqlTimeTypeInfo(kind=time_kind):
            return _sql_time(time_kind, type_info)
        case TupleTypeInfo(field_types):
            return _tuple(field_types, type_info, rounds)
        case RowTypeInfo():
            return _row(type_info, rounds)
        case PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE)):
            return _bytes(type_info)
        case ListTypeInfo(element) | PrimitiveArrayTypeInfo(element):
            return _list(fit_for(element, rounds=rounds), type_info, _elements_exact(element))
        case BasicArrayTypeInfo(element) | ObjectArrayTypeInfo(element):
            return _list(_or_none(fit_for(element, rounds=rounds)), type_info)
        case MapTypeInfo(key, value):
            key_fit, value_fit = fit_for(key, rounds=rounds), fit_for(value, rounds=rounds)
            return _map(key_fit, _or_none(value_fit), type_info)
        case PickledBytesTypeInfo():
            return Fit(lambda _: True, lambda value, _: value)
    message = f"penstock has no encoding for {type_info!r}"
    raise TypeError(message)


def _basic(kind: BasicType, type_info: TypeInformation) -> Fit:
    if kind in INTEGER_BITS:
        return _integer(1 << (INTEGER_BITS[kind] - 1), type_info)
    match kind:
        case BasicType.BIG_INT:
            return Fit(_has_class(int), lambda value, path: _index(value, path, type_info))
        case BasicType.STRING:
            return Fit(_has_class(str), lambda value, path: _text(value, path, type_info))
        case BasicType.CHAR:
            return _char(type_info)
        case BasicType.BOOLEAN:
            return _only(bool, type_info)
        case BasicType.DOUBLE:
            return Fit(_has_class(float), lambda value, path: _number(value, path, type_info))
    return _only(Instant if kind is BasicType.INSTANT else Decimal, type_info)


def _has_class(wanted: type) -> Exact:
    def exact(value: Any) -> bool:
        return value.__class__ is wanted

    return exact


def _only(wanted: type, type_info: TypeInformation) -> Fit:
    def normal(value: Any, path: str) -> Any:
        if value.__class__ is wanted:
            return value
        raise TypeMismatchError(path, value, type_info)

    return Fit(_has_class(wanted), normal)


def _integer(bound: int, type_info: TypeInformation) -> Fit:
    lowest, highest = -bound, bound - 1

    def exact(value: Any) -> bool:
        return value.__class__ is int and lowest <= value <= highest

    def normal(value: Any, path: str) -> int:
        number = _index(value, path, type_info)
        if lowest <= number <= highest:
            return number
        raise TypeMismatchError(path, value, type_info)

    return Fit(exact, normal)


def _index(value: Any, path: str, type_info: TypeInformation) -> int:
    # What changes in place, as an array of no dimension does, is no number.
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


def _float32(type_info: TypeInformation, rounds: bool) -> Fit:
    def normal(value: Any, path: str) -> float:
        number = _number(value, path, type_info)
        try:
            rounded: float = _FLOAT32.unpack(_FLOAT32.pack(number))[0]
        except OverflowError:
            raise TypeMismatchError(path, value, type_info) from None
        return rounded if rounds else number

    return Fit(lambda _: False, normal)


def _char(type_info: TypeInformation) -> Fit:
    def exact(value: Any) -> bool:
        return value.__class__ is str and len(value) == 1

    def normal(value: Any, path: str) -> str:
        text = _text(value, path, type_info)
        if len(text) == 1:
            return text
        raise TypeMismatchError(path, value, type_info)

    return Fit(exact, normal)


def _bytes(type_info: TypeInformation) -> Fit:
    def normal(value: Any, path: str) -> bytes:
        if isinstance(value, bytes | bytearray):
            return bytes(value)
        raise TypeMismatchError(path, value, type_info)

    return Fit(_has_class(bytes), normal)


_SQL_TIME_CLASSES: dict[SqlTimeType, type] = {
    SqlTimeType.DATE: datetime.date,
    SqlTimeType.TIME: datetime.time,
    SqlTimeType.TIMESTAMP: datetime.datetime,
}


def _sql_time(kind: SqlTimeType, type_info: TypeInformation) -> Fit:
    wanted: Any = _SQL_TIME_CLASSES[kind]
    if kind is SqlTimeType.DATE:
        return _only(wanted, type_info)

    def exact(value: Any) -> bool:
        return value.__class__ is wanted and value.tzinfo is None

    def normal(value: Any, path: str) -> Any:
        if exact(value):
            return value
        raise TypeMismatchError(path, value, type_info)

    return Fit(exact, normal)


def _or_none(fit: Fit) -> Fit:
    exact_value, normal_value = fit.exact, fit.normal

    def exact(value: Any) -> bool:
        return value is None or exact_value(value)

    def normal(value: Any, path: str) -> Any:
        return None if value is None else normal_value(value, path)

    return Fit(exact, normal)


def _tuple(
    field_types: tuple[TypeInformation, ...], type_info: TypeInformation, rounds: bool
) -> Fit:
    fits = [fit_for(field_type, rounds=rounds) for field_type in field_types]
    count = len(fits)
    fields_exact = _compiled(
        [_condition(field_type, at) for at, field_type in enumerate(field_types)], fits
    )

    def exact(value: Any) -> bool:
        return value.__class__ is tuple and len(value) == count and fields_exact(value)

    def normal(value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, tuple) or len(value) != count:
            raise TypeMismatchError(path, value, type_info)
        return tuple(
            fit(field, _below(path, f"f{position}"))
            for position, (fit, field) in enumerate(zip(fits, value, strict=True))
        )

    return Fit(exact, normal)


def _row(type_info: RowTypeInfo, rounds: bool) -> Fit:
    fits = [_or_none(fit_for(each, rounds=rounds)) for each in type_info.field_types]
    names = type_info.get_field_names()
    count = len(names)
    fields_exact = _compiled(
        [
            f"(value[{at}] is None or {_condition(field_type, at)})"
            for at, field_type in enumerate(type_info.field_types)
        ],
        fits,
    )

    def exact(value: Any) -> bool:
        return (
            value.__class__ is Row
            and getattr(value, "_fields", None) == names
            and len(value._values) == count
            and fields_exact(value._values)
        )

    def normal(value: Any, path: str) -> Row:
        fields = _row_fields(value, names)
        if fields is None or len(fields) != count:
            raise TypeMismatchError(path, value, type_info)
        row = Row(
            *(
                fit(field, _below(path, name))
                for fit, field, name in zip(fits, fields, names, strict=True)
            )
        )
        row.set_field_names(list(names))
        if isinstance(value, Row):
            row.set_row_kind(value.get_row_kind())
        return row

    return Fit(exact, normal)


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
            bound = 1 << (INTEGER_BITS[type_info.kind] - 1)
            return f"(value[{at}].__class__ is int and {-bound} <= value[{at}] <= {bound - 1})"
        if type_info.kind in _CLASSES:
            return f"value[{at}].__class__ is {_CLASSES[type_info.kind].__name__}"
    return f"exacts[{at}](value[{at}])"


def _compiled(conditions: list[str], fits: list[Fit]) -> Exact:
    # A loop over the fields takes five times as long, and this runs on every write.
    expression = " and ".join(conditions) or "True"
    exact: Exact = eval(f"lambda value: {expression}", {"exacts": [fit.exact for fit in fits]})
    return exact


def _row_fields(value: Any, names: list[str]) -> Any:
    if isinstance(value, tuple):
        return value
    if not isinstance(value, Row):
        return None
    try:
        return value.get_fields_by_names(names)
    except ValueError:
        return None


def _list(element: Fit, type_info: TypeInformation, elements_exact: Exact | None = None) -> Fit:
    exact_element = element.exact

    def exact(value: Any) -> bool:
        if value.__class__ is not list:
            return False
        return all(map(exact_element, value)) if elements_exact is None else elements_exact(value)

    def normal(value: Any, path: str) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise TypeMismatchError(path, value, type_info)
        return [element(item, f"{path}[{position}]") for position, item in enumerate(value)]

    return Fit(exact, normal)


def _elements_exact(element: TypeInformation) -> Exact | None:
    """Return a check of all elements at once, for types where that is quicker."""
    if not isinstance(element, BasicTypeInfo):
        return None
    if element.kind in INTEGER_BITS:
        bound = 1 << (INTEGER_BITS[element.kind] - 1)
        return lambda values: (
            not values
            or (set(map(type, values)) == {int} and -bound <= min(values) and max(values) < bound)
        )
    wanted = _CLASSES.get(element.kind)
    return None if wanted is None else lambda values: set(map(type, values)) <= {wanted}


def _map(key_fit: Fit, value_fit: Fit, type_info: TypeInformation) -> Fit:
    exact_key, exact_value = key_fit.exact, value_fit.exact

    def exact(value: Any) -> bool:
        return (
            value.__class__ is dict
            and all(map(exact_key, value))
            and all(map(exact_value, value.values()))
        )

    def normal(value: Any, path: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise TypeMismatchError(path, value, type_info)
        return {
            key_fit(key, f"{path}[key {key!r}]"): value_fit(item, f"{path}[{key!r}]")
            for key, item in value.items()
        }

    return Fit(exact, normal)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
