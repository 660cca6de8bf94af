"""JSON."""

from penstock.connectors.json_rows import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]
