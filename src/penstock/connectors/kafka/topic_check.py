"""Whether a topic is there, asked before anything is written to it."""

from __future__ import annotations

import time
from typing import Any

from penstock.connectors.kafka.client import confluent
from penstock.errors import KafkaSinkRefusedError, KafkaUnreachableError

__all__ = ["check_topic"]

# A broker that has just come back, or a topic just made, is not known everywhere yet.
_MISSING_SECONDS = 5.0
_RETRY_SECONDS = 0.2


def check_topic(producer: Any, topic: str, servers: str, answer_seconds: float) -> None:
    """Raise unless the brokers know a topic, or create it because a producer asks."""
    what = f"to write to topic {topic!r}"
    deadline = time.monotonic() + min(_MISSING_SECONDS, answer_seconds)
    while True:
        try:
            found = producer.list_topics(topic, answer_seconds).topics.get(topic)
        except confluent().KafkaException as error:
            raise KafkaUnreachableError(what, servers, error.args[0].str()) from error
        trouble = None if found is None else found.error
        if found is not None and trouble is None:
            return
        reason = "it is not there" if trouble is None else trouble.str()
        if trouble is not None and trouble.name() == "LEADER_NOT_AVAILABLE":
            raise KafkaUnreachableError(what, servers, reason)
        if time.monotonic() >= deadline:
            raise KafkaSinkRefusedError(what, servers, reason, "create it first")
        time.sleep(_RETRY_SECONDS)
