"""Sources of one's own for brokers that want acknowledgements."""

from penstock.connectors.acknowledging import (
    AcknowledgingSource,
    Delivery,
    Receiver,
    ReceiverContext,
)

__all__ = ["AcknowledgingSource", "Delivery", "Receiver", "ReceiverContext"]
