"""Serialization schemas: how a record of a stream becomes a Kafka record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from penstock.common.serialization import SerializationSchema
from penstock.connectors.contracts.builder_checks import require
from penstock.errors import KafkaRecordError

Message = dict[str, Any]
"""Arguments of a producer besides the topic: ``value``, and ``key``, ``partition``,
``timestamp``, ``headers`` where present."""

Headers = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]

HeaderProvider = Callable[[Any], Headers | None]


class KafkaTopicSelector(ABC):
    """Chooses the topic of each record."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """Return the name of the topic for a record; called in tasks, again after a failure."""


@dataclass(frozen=True, eq=False)
class KafkaRecordSerializationSchema(SerializationSchema):
    """Serializes records for Kafka; created with :meth:`builder`, pickled into tasks."""

    topic: str | None
    """The topic of all records; None if a selector chooses it for each."""
    topic_selector: Callable[[Any], str] | None
    key_schema: SerializationSchema | None
    value_schema: SerializationSchema
    extras: Mapping[str, Callable[[Any], Any]]

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Return a builder; it needs a topic and a schema for values."""
        return KafkaRecordSerializationSchemaBuilder()

    def serialize(self, element: Any) -> bytes:
        """Return the bytes of the record's value."""
        return self.value_schema.serialize(element)

    def topic_of(self, element: Any) -> str:
        """Return the topic of a record."""
        if self.topic_selector is None:
            assert self.topic is not None
            return self.topic
        topic = self.topic_selector(element)
        if not isinstance(topic, str) or not topic:
            part, reason = "topic", "a topic selector must return a name"
            raise KafkaRecordError(part, topic, reason)
        return topic

    def encoder(self) -> Callable[[Any], Message]:
        """Return the function that creates messages; called once by each writer."""
        value_of = self.value_schema.serialize
        if self.key_schema is None and not self.extras:

            def encode_value(element: Any) -> Message:
                value: Any = value_of(element)
                if type(value) is not bytes:
                    value = _bytes_or_none("value", value)
                return {"value": value}

            return encode_value
        key_of: Any = (lambda _: None) if self.key_schema is None else self.key_schema.serialize

        def encode(element: Any) -> Message:
            key: Any = key_of(element)
            value: Any = value_of(element)
            if type(value) is not bytes:
                value = _bytes_or_none("value", value)
            if type(key) is not bytes:
                key = _bytes_or_none("key", key)
            return {"key": key, "value": value}

        if not self.extras:
            return encode
        extras = [(name, provide, _CHECKS[name]) for name, provide in self.extras.items()]

        def encode_all(element: Any) -> Message:
            message = encode(element)
            for name, provide, check in extras:
                value = provide(element)
                if value is not None:
                    message[name] = check(value)
            return message

        return encode_all


class KafkaRecordSerializationSchemaBuilder:
    """Builds a :class:`KafkaRecordSerializationSchema`."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._topic_selector: Callable[[Any], str] | None = None
        self._key_schema: SerializationSchema | None = None
        self._value_schema: SerializationSchema | None = None
        self._extras: dict[str, Callable[[Any], Any]] = {}

    def set_topic(self, topic: str) -> Self:
        """Write every record into one topic."""
        self._check_no_topic()
        message = f"a topic must be a non-empty string; got {topic!r}"
        require(isinstance(topic, str) and topic, message, ValueError)
        self._topic = topic
        return self

    def set_topic_selector(self, topic_selector: KafkaTopicSelector | Callable[[Any], str]) -> Self:
        """Choose the topic of each record."""
        self._check_no_topic()
        if isinstance(topic_selector, KafkaTopicSelector):
            topic_selector = topic_selector.apply
        message = "topic_selector must be KafkaTopicSelector or a callable"
        require(callable(topic_selector), message, TypeError)
        self._topic_selector = topic_selector
        return self

    def set_key_serialization_schema(self, key_serialization_schema: SerializationSchema) -> Self:
        """Set the key: records with the same key stay in order, in the same partition."""
        require(self._key_schema is None, "Key serializer already set.", ValueError)
        self._key_schema = _schema(key_serialization_schema)
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> Self:
        """Set how values are serialized; None is written as a tombstone."""
        require(self._value_schema is None, "Value serializer already set.", ValueError)
        self._value_schema = _schema(value_serialization_schema)
        return self

    def set_header_provider(self, header_provider: HeaderProvider) -> Self:
        """Set the headers of each record: names and bytes, or None for no headers."""
        return self._extra("headers", header_provider)

    def set_timestamp(self, timestamp: Callable[[Any], int | None]) -> Self:
        """Set the timestamp of each record in milliseconds; by default the time it is sent."""
        return self._extra("timestamp", timestamp)

    def set_partitioner(self, partitioner: Callable[[Any], int | None]) -> Self:
        """Choose each record's partition; None leaves it to Kafka's partitioner."""
        return self._extra("partition", partitioner)

    def build(self) -> KafkaRecordSerializationSchema:
        """Build the schema."""
        if self._value_schema is None:
            message = "No value serializer is configured."
            raise ValueError(message)
        if self._topic is None and self._topic_selector is None:
            message = "No topic selector is configured."
            raise ValueError(message)
        return KafkaRecordSerializationSchema(
            self._topic,
            self._topic_selector,
            self._key_schema,
            self._value_schema,
            dict(self._extras),
        )

    def _extra(self, name: str, provide: Callable[[Any], Any]) -> Self:
        message = f"{name} must be set with a function; got {provide!r}"
        require(callable(provide), message, TypeError)
        self._extras[name] = provide
        return self

    def _check_no_topic(self) -> None:
        is_first = self._topic is None and self._topic_selector is None
        require(is_first, "Topic selector already set.", ValueError)


def _schema(schema: SerializationSchema) -> SerializationSchema:
    message = f"expected a SerializationSchema; got {schema!r}"
    require(isinstance(schema, SerializationSchema), message, TypeError)
    return schema


def _bytes_or_none(part: str, data: Any) -> bytes | None:
    if data is None:
        return None
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise KafkaRecordError(part, data, "the schema must return bytes")


def _whole_number(part: str, bits: int) -> Callable[[Any], int]:
    def check(number: Any) -> int:
        if not isinstance(number, int) or not 0 <= number < 1 << bits:
            reason = f"it must be an integer of at most {bits} bits that is not negative"
            raise KafkaRecordError(part, number, reason)
        return int(number)

    return check


def _headers(headers: Any) -> list[tuple[str, bytes | None]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return [(_name(name), _bytes_or_none("header", data)) for name, data in pairs]
    except (TypeError, ValueError) as error:
        part, reason = "headers", "they must be names and bytes"
        raise KafkaRecordError(part, headers, reason) from error


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(name)
    return name


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "headers": _headers,
    "timestamp": _whole_number("timestamp", 63),
    "partition": _whole_number("partition", 31),
}
