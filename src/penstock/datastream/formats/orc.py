"""ORC files."""

from penstock.connectors.orc import OrcBulkWriters

__all__ = ["OrcBulkWriters"]
