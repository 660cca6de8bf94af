"""Parquet and ORC files, by way of Arrow."""
