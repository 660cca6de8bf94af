"""A source of consecutive numbers."""

from penstock.connectors.indexed_sources import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
