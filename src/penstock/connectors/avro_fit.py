"""Whether a record fits an Avro schema: at a glance, or by fastavro's own look, which is slow."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.connectors.avro_schema import AvroSchema, fastavro
from penstock.errors import UnwritableRecordError
from penstock.errors.base import show

__all__ = ["checker"]

_Glance: TypeAlias = Callable[[Any], bool]


def checker(schema: AvroSchema) -> Callable[[Any], None]:
    """Make a check that raises for a record which does not fit.

    Without one, a number too large for its field would be written, and not every reader could
    read it.
    """
    fits, parsed, library = _glance(schema.expanded()), schema.parsed(), fastavro()

    def check(record: Any) -> None:
        if fits(record):
            return
        try:
            library.validation.validate(record, parsed)
        except library.validation.ValidationError as error:
            reason = "; ".join(map(str, error.errors))
            raise UnwritableRecordError(show(record), reason) from None

    return check


def _glance(schema: Any) -> _Glance:
    """Make a check that is true for what surely fits."""
    if isinstance(schema, list):
        branches = [_glance(branch) for branch in schema]
        return lambda value: any(fits(value) for fits in branches)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(schema, dict) and "logicalType" in schema:
        wanted = _MOMENTS.get(schema["logicalType"])
        return _never if wanted is None else lambda value: type(value) is wanted
    if isinstance(kind, dict | list):
        return _glance(kind)
    if kind == "record":
        fields = [(field["name"], _glance(field["type"])) for field in schema["fields"]]
        return lambda value: type(value) is dict and _fields_fit(value, fields)
    if kind == "array":
        items = _glance(schema["items"])
        return lambda value: type(value) is list and all(map(items, value))
    if kind == "map":
        values = _glance(schema["values"])
        return lambda value: (
            type(value) is dict
            and all(map(values, value.values()))
            and all(type(key) is str for key in value)
        )
    if kind == "enum":
        symbols = frozenset(schema["symbols"])
        return lambda value: type(value) is str and value in symbols
    return _PRIMITIVES.get(kind, _never)


def _fields_fit(record: dict[str, Any], fields: list[tuple[str, _Glance]]) -> bool:
    return all(name in record and fits(record[name]) for name, fits in fields)


def _never(value: Any) -> bool:
    return False


_MOMENTS: dict[str, type] = {
    "date": datetime.date,
    "time-millis": datetime.time,
    "time-micros": datetime.time,
    "timestamp-millis": datetime.datetime,
    "timestamp-micros": datetime.datetime,
}
_PRIMITIVES: dict[str, _Glance] = {
    "null": lambda value: value is None,
    "boolean": lambda value: type(value) is bool,
    "int": lambda value: type(value) is int and -(2**31) <= value < 2**31,
    "long": lambda value: type(value) is int and -(2**63) <= value < 2**63,
    "float": lambda value: type(value) is float,
    "double": lambda value: type(value) is float,
    "string": lambda value: type(value) is str,
    "bytes": lambda value: type(value) is bytes,
}
