"""Converts between rows and records of an Avro schema, which are dicts."""

from __future__ import annotations

import datetime
from typing import Any

from penstock.common.row import Row
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.connectors.formats.avro.schema import AvroSchema, record_schema
from penstock.errors import InvalidJobError, UnwritableRecordError
from penstock.types.traversal import Convert, identity, or_none

_PRIMITIVES: dict[str, TypeInformation] = {
    "boolean": Types.BOOLEAN(),
    "int": Types.INT(),
    "long": Types.LONG(),
    "float": Types.FLOAT(),
    "double": Types.DOUBLE(),
    "string": Types.STRING(),
    "enum": Types.STRING(),
    "bytes": Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "fixed": Types.PRIMITIVE_ARRAY(Types.BYTE()),
}
_LOGICAL: dict[str, TypeInformation] = {
    "uuid": Types.STRING(),
    "decimal": Types.BIG_DEC(),
    "date": Types.SQL_DATE(),
    "time-millis": Types.SQL_TIME(),
    "time-micros": Types.SQL_TIME(),
    "timestamp-millis": Types.SQL_TIMESTAMP(),
    "timestamp-micros": Types.SQL_TIMESTAMP(),
    "local-timestamp-millis": Types.SQL_TIMESTAMP(),
    "local-timestamp-micros": Types.SQL_TIMESTAMP(),
}
_IN_UTC = ("timestamp-millis", "timestamp-micros")


def row_type_of_schema(schema: AvroSchema) -> RowTypeInfo:
    """Return the type of the rows of a schema, as in Flink.

    A union with null has the type of its other branch; timestamps are in UTC.
    """
    kind = _type(record_schema(schema).expanded(), "")
    assert isinstance(kind, RowTypeInfo)
    return kind


def row_converter(schema: AvroSchema) -> Convert:
    """Return the function that converts a record (a dict) to a row."""
    return _converter(schema.expanded(), to_row=True) or identity


def record_converter(schema: AvroSchema) -> Convert:
    """Return the function that converts a row or a record to a new record."""
    return _converter(schema.expanded(), to_row=False) or identity


def _kind(schema: Any) -> tuple[str, Any, str | None]:
    """Return the name of a type, its definition and its logical type.

    For a union with null, those of the other branch.
    """
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        return _kind(others[0]) if len(others) == 1 else ("union", schema, None)
    if isinstance(schema, dict):
        if isinstance(schema["type"], dict | list):
            return _kind(schema["type"])
        return schema["type"], schema, schema.get("logicalType")
    return schema, schema, None


def _type(schema: Any, path: str) -> TypeInformation:
    kind, definition, logical = _kind(schema)
    if kind == "record":
        fields = definition["fields"]
        types = [_type(field["type"], f"{path}{field['name']}.") for field in fields]
        return Types.ROW_NAMED([field["name"] for field in fields], types)
    if kind == "array":
        return Types.OBJECT_ARRAY(_type(definition["items"], path))
    if kind == "map":
        return Types.MAP(Types.STRING(), _type(definition["values"], path))
    found = _LOGICAL.get(logical or "") or _PRIMITIVES.get(kind)
    if found is None:
        message = (
            f"field {path.rstrip('.')!r}: a row has no type for {schema!r} of an Avro schema; "
            "unions other than with null, and recursive records, can be read as dicts"
        )
        raise InvalidJobError(message)
    return found


def _converter(schema: Any, *, to_row: bool) -> Convert | None:
    """Return the conversion of a type; None if values are the same on both sides."""
    kind, definition, logical = _kind(schema)
    if kind == "record":
        fields = {
            field["name"]: _converter(field["type"], to_row=to_row) or identity
            for field in definition["fields"]
        }
        return or_none(_to_row(fields) if to_row else _to_record(fields))
    if kind == "array":
        each = _converter(definition["items"], to_row=to_row) or identity
        return or_none(lambda values: [each(value) for value in values])
    if kind == "map":
        each = _converter(definition["values"], to_row=to_row) or identity
        return or_none(lambda values: {key: each(value) for key, value in values.items()})
    if logical in _IN_UTC:
        return or_none(_without_zone if to_row else _in_utc)
    return or_none(str) if logical == "uuid" and to_row else None


def _to_row(fields: dict[str, Convert]) -> Convert:
    make, parts = Row(*fields), list(fields.items())
    return lambda record: make(*(of(record[name]) for name, of in parts))


def _to_record(fields: dict[str, Convert]) -> Convert:
    names, parts = list(fields), list(fields.items())

    def make(row: Any) -> Any:
        if isinstance(row, dict):
            return {**row, **{name: of(row[name]) for name, of in parts if name in row}}
        try:
            values = row.get_fields_by_names(names) if isinstance(row, Row) else row
            return {name: of(v) for (name, of), v in zip(parts, values, strict=True)}
        except (TypeError, ValueError, AttributeError) as error:
            reason = f"fields {names} are expected: {error}"
            raise UnwritableRecordError(row, reason) from error

    return make


def _without_zone(time: datetime.datetime) -> datetime.datetime:
    return time.astimezone(datetime.UTC).replace(tzinfo=None) if time.tzinfo else time


def _in_utc(time: Any) -> Any:
    if isinstance(time, datetime.datetime) and time.tzinfo is None:
        return time.replace(tzinfo=datetime.UTC)
    return time
