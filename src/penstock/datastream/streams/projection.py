"""Projections of tuples."""

from __future__ import annotations

from typing import Any

from penstock.common.typeinfo import TupleTypeInfo, TypeInformation, Types
from penstock.datastream.functions import MapFunction
from penstock.errors import InvalidJobError


class Projection(MapFunction[tuple[Any, ...], tuple[Any, ...]]):
    """Keeps some fields of each tuple."""

    def __init__(self, fields: tuple[int, ...]) -> None:
        self._fields = fields

    def map(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the selected fields."""
        return tuple([value[field] for field in self._fields])


def projected_type(type_info: TypeInformation | None, fields: tuple[int, ...]) -> TypeInformation:
    """Return the type of the selected fields of a tuple.

    Raises:
        InvalidJobError: the type is not a tuple, or has no such fields.
    """
    if not isinstance(type_info, TupleTypeInfo):
        message = (
            "project() needs a stream of a declared TUPLE type: set, on the step before it, "
            "output_type=Types.TUPLE([...]), or use map()"
        )
        raise InvalidJobError(message)
    types = type_info.get_field_types()
    for position in fields:
        if not isinstance(position, int) or not 0 <= position < len(types):
            message = f"project() takes fields from 0 to {len(types) - 1} here; got {position!r}"
            raise InvalidJobError(message)
    if not fields:
        message = "project() needs at least one field"
        raise InvalidJobError(message)
    return Types.TUPLE([types[position] for position in fields])
