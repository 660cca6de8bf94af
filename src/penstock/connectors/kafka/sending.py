"""Handing messages to a producer: many at once, in order, however full its queue is."""

from __future__ import annotations

from typing import Any

from penstock.connectors.kafka.client import KafkaProperties, confluent, new_producer
from penstock.connectors.kafka.serialization import Message
from penstock.errors import KafkaDeliveryError

__all__ = [
    "Sender",
    "answer_seconds",
    "check_numbers",
    "largest_message",
    "limits_of_messages",
    "open_producer",
]

_LARGEST_QUEUE = 200_000
_LARGEST_QUEUE_KIB = 256 * 1024
_PAUSE_SECONDS = 0.05
_LIMITS_OF_MESSAGES = ("message.max.bytes", "max.request.size")
_ANSWER_MS = "max.block.ms"
_DEFAULT_LARGEST_MESSAGE = 1_000_000
_DEFAULT_ANSWER_MS = 30_000


def open_producer(properties: KafkaProperties, **settings: Any) -> Any:
    """Open a producer with the partitioner of Kafka's Java client, unless the user has another."""
    defaults = {
        "partitioner": "murmur2_random",
        "queue.buffering.max.kbytes": _LARGEST_QUEUE_KIB,
        "queue.buffering.max.messages": 2 * _LARGEST_QUEUE,
        "socket.nagle.disable": True,
    }
    return new_producer(
        KafkaProperties({**defaults, **properties}), delivery_report_only_error=True, **settings
    )


def largest_message(properties: KafkaProperties) -> int:
    """Tell how many bytes key, value and headers of a message may have together."""
    return _first_number(properties, *_LIMITS_OF_MESSAGES) or _DEFAULT_LARGEST_MESSAGE


def limits_of_messages(properties: KafkaProperties) -> KafkaProperties:
    """Return what `largest_message` needs of them, and nothing else."""
    return KafkaProperties({n: properties[n] for n in _LIMITS_OF_MESSAGES if n in properties})


def answer_seconds(properties: KafkaProperties) -> float:
    """Tell how long to wait for brokers before something is given up or asked anew."""
    return (_first_number(properties, _ANSWER_MS) or _DEFAULT_ANSWER_MS) / 1000


def check_numbers(properties: KafkaProperties) -> None:
    """Refuse what the functions here would take for a number that is not set."""
    for name in (*_LIMITS_OF_MESSAGES, _ANSWER_MS, "transaction.timeout.ms"):
        text = properties.get(name, "1").strip()
        if not (text.isdecimal() and int(text) > 0):
            message = f"{name} must be a whole number above 0; got {properties[name]!r}"
            raise ValueError(message)


def _first_number(properties: KafkaProperties, *names: str) -> int | None:
    texts = (properties.get(name, "").strip() for name in names)
    return next((int(text) for text in texts if text.isdigit()), None)


class Sender:
    """Sends through one producer, and remembers the first message that did not arrive."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._kafka = confluent()
        self.failure: KafkaDeliveryError | None = None
        self.failure_code: int | None = None

    def send(self, topic: str, messages: list[Message]) -> None:
        """Queue messages of a topic, behind those queued before; raise what failed till now."""
        producer = self._producer
        while len(producer) > _LARGEST_QUEUE:
            producer.poll(_PAUSE_SECONDS)
        if all(map(_EXTRAS.isdisjoint, messages)):
            self._send_plain(topic, messages)
        else:
            self._send_each(topic, messages)
        producer.poll(0)
        self.check()

    def check(self) -> None:
        """Raise what is known to have failed."""
        if self.failure is not None:
            raise self.failure

    def _send_plain(self, topic: str, messages: list[Message]) -> None:
        producer, rest = self._producer, messages
        while producer.produce_batch(topic, rest, on_delivery=self._told) < len(rest):
            # A full queue refuses all messages behind the first one it refuses.
            at = next(i for i, message in enumerate(rest) if "_error" in message)
            refused = rest[at]
            if refused["_error"].code() != self._kafka.KafkaError._QUEUE_FULL:
                self._note(refused["_error"], topic, refused.get("key"))
                self.check()
            rest = [_without_error(message) for message in rest[at:]]
            producer.poll(_PAUSE_SECONDS)

    def _send_each(self, topic: str, messages: list[Message]) -> None:
        produce, poll = self._producer.produce, self._producer.poll
        for message in messages:
            if (headers := message.get("headers")) is not None:
                message["headers"] = [(name, data) for name, data in headers]
            while True:
                try:
                    produce(topic, on_delivery=self._told, **message)
                except BufferError:
                    poll(_PAUSE_SECONDS)
                except self._kafka.KafkaException as error:
                    self._note(error.args[0], topic, message.get("key"))
                    self.check()
                else:
                    break

    def _told(self, error: Any, message: Any) -> None:
        if error is not None:
            self._note(error, message.topic(), message.key())

    def _note(self, error: Any, topic: str, key: bytes | None) -> None:
        if self.failure is None:
            self.failure = KafkaDeliveryError(topic, key, f"{error.name()}: {error.str()}")
            self.failure_code = error.code()


_EXTRAS = frozenset({"headers", "partition", "timestamp"})
"""What a producer does not take of many messages at once; not all of it does it refuse."""


def _without_error(message: Message) -> Message:
    return {name: data for name, data in message.items() if name != "_error"}
