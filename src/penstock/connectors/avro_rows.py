"""Rows as records of an Avro schema."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.common.row import Row
from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.connectors.avro_fit import checker
from penstock.connectors.avro_schema import AvroSchema, fastavro, record_schema
from penstock.errors import ConnectorError, InvalidJobError, UnwritableRecordError
from penstock.errors.base import show

__all__ = [
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "record_maker",
    "row_maker",
    "row_type_of_schema",
]

Maker: TypeAlias = Callable[[Any], Any]

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
    """Return the type of the rows of a schema, as Flink has it.

    A union with null is what it is a union with; timestamps are in UTC.
    """
    kind = _type(record_schema(schema).expanded(), "")
    assert isinstance(kind, RowTypeInfo)
    return kind


def row_maker(schema: AvroSchema) -> Maker:
    """Make the function that turns a record (a dict) into a row."""
    return _maker(schema.expanded(), to_row=True) or _itself


def record_maker(schema: AvroSchema) -> Maker:
    """Make the function that turns a row, or a record, into a record nobody else holds."""
    return _maker(schema.expanded(), to_row=False) or _itself


def _kind(schema: Any) -> tuple[str, Any, str | None]:
    """Tell the name of a type, where it is described, and its logical type.

    Of a union with null, those of the other branch.
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
    kind, described, logical = _kind(schema)
    if kind == "record":
        fields = described["fields"]
        types = [_type(field["type"], f"{path}{field['name']}.") for field in fields]
        return Types.ROW_NAMED([field["name"] for field in fields], types)
    if kind == "array":
        return Types.OBJECT_ARRAY(_type(described["items"], path))
    if kind == "map":
        return Types.MAP(Types.STRING(), _type(described["values"], path))
    found = _LOGICAL.get(logical or "") or _PRIMITIVES.get(kind)
    if found is None:
        message = (
            f"field {path.rstrip('.')!r}: a row has no type for {schema!r} of an Avro schema; "
            "unions other than with null, and records inside of themselves, can be read as dicts"
        )
        raise InvalidJobError(message)
    return found


def _maker(schema: Any, *, to_row: bool) -> Maker | None:
    """Make the function for a type; None if values are the same on both sides."""
    kind, described, logical = _kind(schema)
    if kind == "record":
        names = [field["name"] for field in described["fields"]]
        makers = [_maker(field["type"], to_row=to_row) or _itself for field in described["fields"]]
        return _or_none(_to_row(names, makers) if to_row else _to_record(names, makers))
    if kind == "array":
        each = _maker(described["items"], to_row=to_row) or _itself
        return _or_none(lambda values: [each(value) for value in values])
    if kind == "map":
        each = _maker(described["values"], to_row=to_row) or _itself
        return _or_none(lambda values: {key: each(value) for key, value in values.items()})
    if logical in _IN_UTC:
        return _or_none(_without_zone if to_row else _in_utc)
    if logical == "uuid" and to_row:
        return _or_none(str)
    return None


def _to_row(names: list[str], makers: list[Maker]) -> Maker:
    make, parts = Row(*names), list(zip(names, makers, strict=True))
    return lambda record: make(*(of(record[name]) for name, of in parts))


def _to_record(names: list[str], makers: list[Maker]) -> Maker:
    def make(row: Any) -> Any:
        if isinstance(row, dict):
            return {
                **row,
                **{
                    name: of(row[name])
                    for name, of in zip(names, makers, strict=True)
                    if name in row
                },
            }
        try:
            values = row.get_fields_by_names(names) if isinstance(row, Row) else row
            return {name: of(v) for name, of, v in zip(names, makers, values, strict=True)}
        except (TypeError, ValueError, AttributeError) as error:
            reason = f"fields {names} are expected: {error}"
            raise UnwritableRecordError(show(row), reason) from error

    return make


def _without_zone(moment: datetime.datetime) -> datetime.datetime:
    return moment.astimezone(datetime.UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _in_utc(moment: Any) -> Any:
    if isinstance(moment, datetime.datetime) and moment.tzinfo is None:
        return moment.replace(tzinfo=datetime.UTC)
    return moment


def _itself(value: Any) -> Any:
    return value


def _or_none(make: Maker) -> Maker:
    return lambda value: None if value is None else make(value)


def _schema_of(record_class: str | None, avro_schema_string: str | None) -> AvroSchema:
    if avro_schema_string is None:
        if record_class is None:
            message = "record_class or avro_schema_string should be specified."
            raise TypeError(message)
        message = f"{record_class} is a class of Java's: give its avro_schema_string instead"
        raise InvalidJobError(message)
    return record_schema(AvroSchema(avro_schema_string))


class AvroRowDeserializationSchema(DeserializationSchema):
    """Rows out of records in Avro's binary form, without a header."""

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        self._schema = _schema_of(record_class, avro_schema_string)
        self._type_info = row_type_of_schema(self._schema)
        self._decode: Maker | None = None

    def deserialize(self, message: bytes) -> Any:
        """Return the row."""
        decode = self._decode or self._make()
        try:
            return decode(message)
        except Exception as error:
            text = f"Failed to deserialize Avro record: {type(error).__name__}: {error}"
            raise ConnectorError(text) from error

    def get_produced_type(self) -> TypeInformation:
        """Return the row type."""
        return self._type_info

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decode": None}

    def _make(self) -> Maker:
        read, parsed, to_row = (
            fastavro().schemaless_reader,
            self._schema.parsed(),
            row_maker(self._schema),
        )
        self._decode = lambda message: to_row(read(io.BytesIO(message), parsed, None))
        return self._decode


class AvroRowSerializationSchema(SerializationSchema):
    """Records in Avro's binary form, without a header, out of rows."""

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        self._schema = _schema_of(record_class, avro_schema_string)
        row_type_of_schema(self._schema)
        self._encode: Callable[[Any], bytes] | None = None

    def serialize(self, element: Any) -> bytes:
        """Return the record."""
        return (self._encode or self._make())(element)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_encode": None}

    def _make(self) -> Callable[[Any], bytes]:
        write, parsed = fastavro().schemaless_writer, self._schema.parsed()
        to_record, check = record_maker(self._schema), checker(self._schema)

        def encode(element: Any) -> bytes:
            record = to_record(element)
            check(record)
            buffer = io.BytesIO()
            write(buffer, parsed, record)
            return buffer.getvalue()

        self._encode = encode
        return encode
