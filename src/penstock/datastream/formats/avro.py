"""Avro; needs the extra ``avro``."""

from penstock.connectors.formats.avro.files import (
    AvroBulkWriters,
    AvroInputFormat,
    AvroReaderFormat,
)
from penstock.connectors.formats.avro.row_schema import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)
from penstock.connectors.formats.avro.schema import AvroSchema, GenericRecordAvroTypeInfo

__all__ = [
    "AvroBulkWriters",
    "AvroInputFormat",
    "AvroReaderFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
]
