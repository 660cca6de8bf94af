"""JSON; the file readers and writers are not in PyFlink."""

from penstock.connectors.formats.json.files import JsonBulkWriters, JsonReaderFormat
from penstock.connectors.formats.json.row_schema import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

__all__ = [
    "JsonBulkWriters",
    "JsonReaderFormat",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
]
