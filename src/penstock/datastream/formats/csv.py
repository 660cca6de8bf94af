"""Comma-separated values."""

from penstock.connectors.formats.csv.files import CsvBulkWriters, CsvReaderFormat
from penstock.connectors.formats.csv.row_schema import (
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
)
from penstock.connectors.formats.csv.schema import CsvSchema, CsvSchemaBuilder

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]
