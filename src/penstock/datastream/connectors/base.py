"""What all connectors are."""

from penstock.connectors.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.sink import Sink
from penstock.connectors.source import Source

__all__ = ["DeliveryGuarantee", "Sink", "Source"]
