"""Custom sinks."""

from penstock.connectors.two_phase.sink import (
    AlreadyCommitted,
    AtLeastOnceSink,
    RetryLater,
    TwoPhaseSink,
)
from penstock.connectors.two_phase.transaction_register import TransactionContext

__all__ = [
    "AlreadyCommitted",
    "AtLeastOnceSink",
    "RetryLater",
    "TransactionContext",
    "TwoPhaseSink",
]
