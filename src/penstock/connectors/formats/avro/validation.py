"""Validates records against an Avro schema: fast for most, else with fastavro, which is slow."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.connectors.formats.avro.schema import AvroSchema, fastavro
from penstock.errors import UnwritableRecordError

_Check: TypeAlias = Callable[[Any], bool]


def record_validator(schema: AvroSchema) -> Callable[[Any], None]:
    """Return a function that raises for a record which does not match the schema.

    Without it, a number too large for its field would be written, and not every reader could read
    it.
    """
    matches, parsed, library = _fast_check(schema.expanded()), schema.parsed(), fastavro()

    def check(record: Any) -> None:
        if matches(record):
            return
        try:
            library.validation.validate(record, parsed)
        except library.validation.ValidationError as error:
            reason = "; ".join(map(str, error.errors))
            raise UnwritableRecordError(record, reason) from None

    return check


def _fast_check(schema: Any) -> _Check:
    """Return a check that is true only for values that certainly match."""
    if isinstance(schema, list):
        branches = [_fast_check(branch) for branch in schema]
        return lambda value: any(matches(value) for matches in branches)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(schema, dict) and "logicalType" in schema:
        wanted = _TIME_CLASSES.get(schema["logicalType"])
        return _never if wanted is None else lambda value: type(value) is wanted
    if isinstance(kind, dict | list):
        return _fast_check(kind)
    if kind == "record":
        fields = [(field["name"], _fast_check(field["type"])) for field in schema["fields"]]
        return lambda value: (
            type(value) is dict
            and all(name in value and matches(value[name]) for name, matches in fields)
        )
    if kind == "array":
        items = _fast_check(schema["items"])
        return lambda value: type(value) is list and all(map(items, value))
    if kind == "map":
        values = _fast_check(schema["values"])
        return lambda value: (
            type(value) is dict
            and all(map(values, value.values()))
            and all(type(key) is str for key in value)
        )
    if kind == "enum":
        symbols = frozenset(schema["symbols"])
        return lambda value: type(value) is str and value in symbols
    return _PRIMITIVES.get(kind, _never)


def _never(value: Any) -> bool:
    return False


_TIME_CLASSES: dict[str, type] = {
    "date": datetime.date,
    "time-millis": datetime.time,
    "time-micros": datetime.time,
    "timestamp-millis": datetime.datetime,
    "timestamp-micros": datetime.datetime,
}
_PRIMITIVES: dict[str, _Check] = {
    "null": lambda value: value is None,
    "boolean": lambda value: type(value) is bool,
    "int": lambda value: type(value) is int and -(2**31) <= value < 2**31,
    "long": lambda value: type(value) is int and -(2**63) <= value < 2**63,
    "float": lambda value: type(value) is float,
    "double": lambda value: type(value) is float,
    "string": lambda value: type(value) is str,
    "bytes": lambda value: type(value) is bytes,
}
