"""What all connectors are."""

from penstock.connectors.sink import Sink
from penstock.connectors.source import Source

__all__ = ["Sink", "Source"]
