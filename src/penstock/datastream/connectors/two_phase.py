"""Sinks made of one's own functions."""

from penstock.connectors.callable_sink import (
    AlreadyCommitted,
    AtLeastOnceSink,
    RetryLater,
    TwoPhaseSink,
)
from penstock.connectors.transaction_register import TransactionContext

__all__ = [
    "AlreadyCommitted",
    "AtLeastOnceSink",
    "RetryLater",
    "TransactionContext",
    "TwoPhaseSink",
]
