"""ORC files."""

from penstock.connectors.formats.columnar.writers import OrcBulkWriters

__all__ = ["OrcBulkWriters"]
