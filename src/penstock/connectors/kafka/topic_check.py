"""Whether a topic is there, asked before a job begins to write to it."""

from __future__ import annotations

from penstock.connectors.kafka.client import KafkaProperties, confluent, new_producer
from penstock.errors import KafkaSinkRefusedError, KafkaUnreachableError

__all__ = ["check_topic"]

_ANSWER_SECONDS = 30.0


def check_topic(properties: KafkaProperties, topic: str) -> None:
    """Raise unless the brokers know a topic, or create it because somebody asks."""
    kafka = confluent()
    servers = properties.get("bootstrap.servers", "")
    what = f"to write to topic {topic!r}"
    # A producer, since asking by one creates the topic where brokers are set to do so.
    producer = new_producer(properties)
    try:
        found = producer.list_topics(topic, _ANSWER_SECONDS).topics.get(topic)
    except kafka.KafkaException as error:
        raise KafkaUnreachableError(what, servers, error.args[0].str()) from error
    if found is None or found.error is not None:
        reason = "it is not there" if found is None else found.error.str()
        advice = "create it first"
        raise KafkaSinkRefusedError(what, servers, reason, advice)
