"""File and record formats: lines of text, CSV, JSON, Avro, Parquet and ORC."""
