"""JSON; the readers and writers of files are ours, after those of CSV."""

from penstock.connectors.json_files import JsonBulkWriters, JsonReaderFormat
from penstock.connectors.json_rows import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

__all__ = [
    "JsonBulkWriters",
    "JsonReaderFormat",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
]
