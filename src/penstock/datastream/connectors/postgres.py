"""Rows into PostgreSQL."""

from penstock.connectors.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.postgres.sink import PostgresSink, PostgresSinkBuilder

__all__ = ["DeliveryGuarantee", "PostgresSink", "PostgresSinkBuilder"]
