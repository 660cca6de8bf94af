"""Parquet files."""

from penstock.connectors.parquet import ParquetBulkWriters

__all__ = ["ParquetBulkWriters"]
