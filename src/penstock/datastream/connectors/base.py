"""What all connectors are."""

from typing import TYPE_CHECKING

from penstock.common.missing_names import asked_of
from penstock.connectors.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.sink import Sink
from penstock.connectors.source import Source

__all__ = ["DeliveryGuarantee", "Sink", "Source"]

if not TYPE_CHECKING:  # a type checker shall find typos
    __getattr__ = asked_of(__name__)
