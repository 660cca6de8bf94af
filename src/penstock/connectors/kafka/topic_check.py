"""Whether a topic is there, asked before anything is written to it."""

from __future__ import annotations

from typing import Any

from penstock.connectors.kafka.client import confluent
from penstock.errors import KafkaSinkRefusedError, KafkaUnreachableError

__all__ = ["check_topic"]


def check_topic(producer: Any, topic: str, servers: str, answer_seconds: float) -> None:
    """Raise unless the brokers know a topic, or create it because a producer asks."""
    what = f"to write to topic {topic!r}"
    try:
        found = producer.list_topics(topic, answer_seconds).topics.get(topic)
    except confluent().KafkaException as error:
        raise KafkaUnreachableError(what, servers, error.args[0].str()) from error
    if found is None or found.error is not None:
        reason = "it is not there" if found is None else found.error.str()
        advice = "create it first"
        raise KafkaSinkRefusedError(what, servers, reason, advice)
