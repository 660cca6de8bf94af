"""Base classes of connectors."""

from typing import TYPE_CHECKING

from penstock.common.pyflink.missing_names import missing_name_getattr
from penstock.connectors.contracts.sink import DeliveryGuarantee, Sink
from penstock.connectors.contracts.source import Source

__all__ = ["DeliveryGuarantee", "Sink", "Source"]

if not TYPE_CHECKING:  # so that type checkers report misspelled names
    __getattr__ = missing_name_getattr(__name__)
