"""Avro; needs the extra ``avro``."""

from penstock.connectors.avro_files import AvroBulkWriters, AvroInputFormat, AvroReaderFormat
from penstock.connectors.avro_rows import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)
from penstock.connectors.avro_schema import AvroSchema, GenericRecordAvroTypeInfo

__all__ = [
    "AvroBulkWriters",
    "AvroInputFormat",
    "AvroReaderFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
]
