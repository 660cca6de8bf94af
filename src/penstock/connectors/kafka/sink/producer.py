"""Producers of the sink: settings, and sending many messages in order with backpressure."""

from __future__ import annotations

import time
from typing import Any

from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.kafka.client import KafkaProperties, confluent, new_producer
from penstock.connectors.kafka.sink.serialization import Message
from penstock.errors import KafkaDeliveryError, KafkaSinkRefusedError, KafkaUnreachableError

_MAX_QUEUED_MESSAGES = 200_000
_MAX_QUEUED_KIB = 256 * 1024
_QUEUE_FULL_SECONDS = 0.05
_MESSAGE_LIMITS = ("message.max.bytes", "max.request.size")
_MAX_BLOCK_MS = "max.block.ms"
_DEFAULT_MAX_MESSAGE_BYTES = 1_000_000
_DEFAULT_MAX_BLOCK_MS = 30_000
# A broker that has just come back does not know every topic yet, nor does every broker know one
# that was just created.
_MISSING_TOPIC_SECONDS = 5.0
_TOPIC_RETRY_SECONDS = 0.2


def open_producer(properties: KafkaProperties, **settings: Any) -> Any:
    """Create a producer that partitions like Kafka's Java client unless configured otherwise."""
    defaults = {
        "partitioner": "murmur2_random",
        "queue.buffering.max.kbytes": _MAX_QUEUED_KIB,
        "queue.buffering.max.messages": 2 * _MAX_QUEUED_MESSAGES,
        "socket.nagle.disable": True,
    }
    return new_producer(
        properties.with_defaults(defaults), delivery_report_only_error=True, **settings
    )


def check_topic(producer: Any, topic: str, servers: str, timeout: float) -> None:
    """Raise unless the topic exists, or the brokers create it on request."""
    what = f"to write to topic {topic!r}"
    deadline = time.monotonic() + min(_MISSING_TOPIC_SECONDS, timeout)
    while True:
        try:
            found = producer.list_topics(topic, timeout).topics.get(topic)
        except confluent().KafkaException as error:
            raise KafkaUnreachableError(what, servers, error.args[0].str()) from error
        failure = None if found is None else found.error
        if found is not None and failure is None:
            return
        reason = "the topic does not exist" if failure is None else failure.str()
        if failure is not None and failure.name() == "LEADER_NOT_AVAILABLE":
            raise KafkaUnreachableError(what, servers, reason)
        if time.monotonic() >= deadline:
            raise KafkaSinkRefusedError(what, servers, reason, "create it first")
        time.sleep(_TOPIC_RETRY_SECONDS)


def max_message_bytes(properties: KafkaProperties) -> int:
    """Return the maximum size of key, value and headers of a message."""
    return _first_number(properties, *_MESSAGE_LIMITS) or _DEFAULT_MAX_MESSAGE_BYTES


def message_limits(properties: KafkaProperties) -> KafkaProperties:
    """Return only those properties that `max_message_bytes` reads."""
    return KafkaProperties({n: properties[n] for n in _MESSAGE_LIMITS if n in properties})


def max_block_seconds(properties: KafkaProperties) -> float:
    """Return how long a call may wait for the brokers before it fails or is retried."""
    return (_first_number(properties, _MAX_BLOCK_MS) or _DEFAULT_MAX_BLOCK_MS) / 1000


def check_numeric_properties(properties: KafkaProperties) -> None:
    """Reject values that the functions above would silently replace by a default."""
    for name in (*_MESSAGE_LIMITS, _MAX_BLOCK_MS, "transaction.timeout.ms"):
        text = properties.get(name, "1").strip()
        message = f"{name} must be a whole number above 0; got {properties.get(name)!r}"
        require(text.isdecimal() and int(text) > 0, message, ValueError)


def _first_number(properties: KafkaProperties, *names: str) -> int | None:
    texts = (properties.get(name, "").strip() for name in names)
    return next((int(text) for text in texts if text.isdigit()), None)


class MessageSender:
    """Sends messages through one producer, and keeps the first delivery failure."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._kafka = confluent()
        self.failure: KafkaDeliveryError | None = None
        self.failure_code: int | None = None

    def send(self, topic: str, messages: list[Message]) -> None:
        """Queue messages after those queued before; raises a delivery failure known by now."""
        producer = self._producer
        while len(producer) > _MAX_QUEUED_MESSAGES:
            producer.poll(_QUEUE_FULL_SECONDS)
        if all(map(_EXTRAS.isdisjoint, messages)):
            self._send_batch(topic, messages)
        else:
            self._send_each(topic, messages)
        producer.poll(0)
        self.check()

    def check(self) -> None:
        """Raise the first delivery failure, if any."""
        if self.failure is not None:
            raise self.failure

    def _send_batch(self, topic: str, messages: list[Message]) -> None:
        producer, rest = self._producer, messages
        while producer.produce_batch(topic, rest, on_delivery=self._on_delivery) < len(rest):
            # A full queue rejects every message after the first one it rejects.
            at = next(i for i, message in enumerate(rest) if "_error" in message)
            rejected = rest[at]
            if rejected["_error"].code() != self._kafka.KafkaError._QUEUE_FULL:
                self._fail(rejected["_error"], topic, rejected.get("key"))
                self.check()
            rest = [{k: v for k, v in message.items() if k != "_error"} for message in rest[at:]]
            producer.poll(_QUEUE_FULL_SECONDS)

    def _send_each(self, topic: str, messages: list[Message]) -> None:
        produce, poll = self._producer.produce, self._producer.poll
        for message in messages:
            if (headers := message.get("headers")) is not None:
                message["headers"] = [(name, data) for name, data in headers]
            while True:
                try:
                    produce(topic, on_delivery=self._on_delivery, **message)
                except BufferError:
                    poll(_QUEUE_FULL_SECONDS)
                except self._kafka.KafkaException as error:
                    self._fail(error.args[0], topic, message.get("key"))
                    self.check()
                else:
                    break

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._fail(error, message.topic(), message.key())

    def _fail(self, error: Any, topic: str, key: bytes | None) -> None:
        if self.failure is None:
            self.failure = KafkaDeliveryError(topic, key, f"{error.name()}: {error.str()}")
            self.failure_code = error.code()


_EXTRAS = frozenset({"headers", "partition", "timestamp"})
"""What `produce_batch` does not support; it silently ignores some of it."""
