"""Records nobody wants."""

from penstock.connectors.discard import DiscardingSink

__all__ = ["DiscardingSink"]
