"""Comma-separated values."""

from penstock.connectors.csv_files import CsvBulkWriters, CsvReaderFormat
from penstock.connectors.csv_rows import CsvRowDeserializationSchema, CsvRowSerializationSchema
from penstock.connectors.csv_schema import CsvSchema, CsvSchemaBuilder

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]
