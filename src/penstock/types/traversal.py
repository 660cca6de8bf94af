"""Walks the structure of a declared type.

This is the one module that knows which types there are, what they contain, and where a value may be
None. Coercions, wire formats, Arrow columns and signatures are all computed by a `TypeVisitor`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

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
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

T = TypeVar("T")

Convert = Callable[[Any], Any]


class TypeVisitor(Generic[T]):
    """Computes a result for a type out of the results for the types inside it.

    A subclass implements the methods for the types it supports; the others raise what
    ``unsupported`` raises. ``nullable`` turns the result for a type into the one for a place of
    that type which may also hold None: a row's field, a map's value, an element of a BASIC or
    OBJECT array.
    """

    def visit(self, type_info: TypeInformation) -> T:
        """Return the result for a type."""
        match type_info:
            case BasicTypeInfo():
                return self.visit_basic(type_info)
            case SqlTimeTypeInfo():
                return self.visit_sql_time(type_info)
            case PickledBytesTypeInfo():
                return self.visit_pickled(type_info)
            case PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE)):
                return self.visit_bytes(type_info)
            case ListTypeInfo(element) | PrimitiveArrayTypeInfo(element):
                return self.visit_array(self.visit(element), type_info)
            case BasicArrayTypeInfo(element) | ObjectArrayTypeInfo(element):
                return self.visit_array(self.nullable(self.visit(element)), type_info)
            case MapTypeInfo(key, value):
                return self.visit_map(self.visit(key), self.nullable(self.visit(value)), type_info)
            case TupleTypeInfo(types):
                return self.visit_tuple(list(map(self.visit, types)), type_info)
            case RowTypeInfo(types):
                return self.visit_row([self.nullable(self.visit(t)) for t in types], type_info)
        return self.unsupported(type_info)

    def nullable(self, result: T) -> T:
        """Return the result for a place that may hold None too."""
        return result

    def visit_leaf(self, type_info: TypeInformation) -> T:
        """Return the result for a type without types inside it, unless its own method does."""
        self.unsupported(type_info)

    def visit_basic(self, type_info: BasicTypeInfo) -> T:
        """Return the result for a number, text, truth value or instant."""
        return self.visit_leaf(type_info)

    def visit_sql_time(self, type_info: SqlTimeTypeInfo) -> T:
        """Return the result for a date, a time or a timestamp."""
        return self.visit_leaf(type_info)

    def visit_pickled(self, type_info: PickledBytesTypeInfo) -> T:
        """Return the result for pickled objects."""
        return self.visit_leaf(type_info)

    def visit_bytes(self, type_info: TypeInformation) -> T:
        """Return the result for ``bytes``, which are a PRIMITIVE_ARRAY(BYTE)."""
        return self.visit_leaf(type_info)

    def visit_array(self, element: T, type_info: TypeInformation) -> T:
        """Return the result for a list of any kind."""
        self.unsupported(type_info)

    def visit_map(self, key: T, value: T, type_info: MapTypeInfo) -> T:
        """Return the result for a dict."""
        self.unsupported(type_info)

    def visit_tuple(self, fields: list[T], type_info: TupleTypeInfo) -> T:
        """Return the result for a tuple."""
        self.unsupported(type_info)

    def visit_row(self, fields: list[T], type_info: RowTypeInfo) -> T:
        """Return the result for a row."""
        self.unsupported(type_info)

    def unsupported(self, type_info: TypeInformation) -> NoReturn:
        """Raise the error for a type without a result."""
        message = f"penstock has no encoding for {type_info!r}"
        raise TypeError(message)


def is_bytes(type_info: TypeInformation) -> bool:
    """Tell whether values of a type are ``bytes``."""
    return type_info == PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE))


def element_type(type_info: TypeInformation) -> TypeInformation | None:
    """Return the type of a list's elements; None for other types, also for ``bytes``."""
    match type_info:
        case (
            ListTypeInfo(element)
            | PrimitiveArrayTypeInfo(element)
            | BasicArrayTypeInfo(element)
            | ObjectArrayTypeInfo(element)
        ) if not is_bytes(type_info):
            return element
    return None


def field_names(type_info: RowTypeInfo | TupleTypeInfo) -> list[str]:
    """Return the names of the fields; those of a tuple are f0, f1, …."""
    if isinstance(type_info, RowTypeInfo):
        return type_info.get_field_names()
    return [f"f{position}" for position in range(len(type_info.field_types))]


def identity(value: Any) -> Any:
    """Return a value as it is."""
    return value


def or_none(convert: Convert) -> Convert:
    """Return a conversion that leaves None alone."""
    return lambda value: None if value is None else convert(value)
