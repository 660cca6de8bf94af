"""PostgreSQL sink."""

from penstock.connectors.contracts.sink import DeliveryGuarantee
from penstock.connectors.postgres.sink import PostgresSink, PostgresSinkBuilder

__all__ = ["DeliveryGuarantee", "PostgresSink", "PostgresSinkBuilder"]
