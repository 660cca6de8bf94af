"""Parquet files."""

from penstock.connectors.parquet import ParquetBulkWriters
from penstock.connectors.parquet_files import ParquetColumnarRowInputFormat

__all__ = ["ParquetBulkWriters", "ParquetColumnarRowInputFormat"]
