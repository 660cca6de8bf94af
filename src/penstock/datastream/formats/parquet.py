"""Parquet files; those of Avro records need the extra ``avro``."""

from penstock.connectors.formats.avro.parquet import AvroParquetReaders, AvroParquetWriters
from penstock.connectors.formats.columnar.parquet_reader import ParquetColumnarRowInputFormat
from penstock.connectors.formats.columnar.writers import ParquetBulkWriters

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
]
