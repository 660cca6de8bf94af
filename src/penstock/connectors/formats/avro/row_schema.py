"""Serialization schemas for rows in Avro's binary encoding, without a file header."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.formats.avro.row_conversion import (
    record_converter,
    row_converter,
    row_type_of_schema,
)
from penstock.connectors.formats.avro.schema import AvroSchema, fastavro, record_schema
from penstock.connectors.formats.avro.validation import record_validator
from penstock.connectors.formats.format_settings import Compiled
from penstock.errors import ConnectorError, InvalidJobError
from penstock.types.traversal import Convert


def _check_schema(record_class: str | None, avro_schema_string: str | None) -> AvroSchema:
    if avro_schema_string is None:
        if record_class is None:
            message = "record_class or avro_schema_string should be specified."
            raise TypeError(message)
        message = f"{record_class} is a Java class: set its avro_schema_string instead"
        raise InvalidJobError(message)
    return record_schema(AvroSchema(avro_schema_string))


def _decoder(schema: AvroSchema) -> Convert:
    read, parsed, to_row = fastavro().schemaless_reader, schema.parsed(), row_converter(schema)
    return lambda message: to_row(read(io.BytesIO(message), parsed, None))


def _encoder(schema: AvroSchema) -> Callable[[Any], bytes]:
    write, parsed = fastavro().schemaless_writer, schema.parsed()
    to_record, validate = record_converter(schema), record_validator(schema)

    def encode(element: Any) -> bytes:
        record = to_record(element)
        validate(record)
        buffer = io.BytesIO()
        write(buffer, parsed, record)
        return buffer.getvalue()

    return encode


class AvroRowDeserializationSchema(DeserializationSchema):
    """Reads rows from records in Avro's binary encoding."""

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        schema = _check_schema(record_class, avro_schema_string)
        self._type_info = row_type_of_schema(schema)
        self._decode = Compiled(_decoder, schema)

    def deserialize(self, message: bytes) -> Any:
        """Return the row."""
        try:
            return self._decode.function(message)
        except Exception as error:
            text = f"Failed to deserialize Avro record: {type(error).__name__}: {error}"
            raise ConnectorError(text) from error

    def get_produced_type(self) -> TypeInformation:
        """Return the row type."""
        return self._type_info


class AvroRowSerializationSchema(SerializationSchema):
    """Writes rows as records in Avro's binary encoding."""

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        schema = _check_schema(record_class, avro_schema_string)
        row_type_of_schema(schema)
        self._encode = Compiled(_encoder, schema)

    def serialize(self, element: Any) -> bytes:
        """Return the record."""
        return self._encode.function(element)
