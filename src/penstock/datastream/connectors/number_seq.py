"""Consecutive numbers."""

from penstock.connectors.sequence import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
