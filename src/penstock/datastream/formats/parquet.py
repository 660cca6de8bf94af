"""Parquet files; those of Avro records need the extra ``avro``."""

from penstock.connectors.avro_parquet import AvroParquetReaders, AvroParquetWriters
from penstock.connectors.parquet import ParquetBulkWriters
from penstock.connectors.parquet_files import ParquetColumnarRowInputFormat

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
]
