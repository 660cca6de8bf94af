"""A sink that discards records."""

from penstock.connectors.discarding_sink import DiscardingSink

__all__ = ["DiscardingSink"]
