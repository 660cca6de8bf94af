"""A source of generated records."""

from penstock.connectors.indexed_sources import DataGeneratorSource, RateLimiterStrategy

__all__ = ["DataGeneratorSource", "RateLimiterStrategy"]
