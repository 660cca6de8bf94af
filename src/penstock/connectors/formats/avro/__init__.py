"""Avro files, rows as Avro records, and Avro records in Parquet files."""
