"""Custom sources for brokers with acknowledgements."""

from penstock.connectors.acknowledging.source import (
    AcknowledgingSource,
    Delivery,
    Receiver,
    ReceiverContext,
)

__all__ = ["AcknowledgingSource", "Delivery", "Receiver", "ReceiverContext"]
