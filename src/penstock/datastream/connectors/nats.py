"""NATS JetStream source, exactly once."""

from penstock.connectors.nats.source import NatsSource, NatsSourceBuilder

__all__ = ["NatsSource", "NatsSourceBuilder"]
