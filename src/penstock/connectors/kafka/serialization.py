"""How a record of a stream becomes a Kafka record: topic, key, value and what goes with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.common.serialization import SerializationSchema
from penstock.errors import KafkaRecordError

__all__ = [
    "HeaderProvider",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaTopicSelector",
    "Message",
]

Message = dict[str, Any]
"""What a producer takes apart from the topic: ``value``, and ``key``, ``partition``,
``timestamp``, ``headers`` if there are any."""

Headers = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]

HeaderProvider = Callable[[Any], Headers | None]


class KafkaTopicSelector(ABC):
    """Chooses the topic of each record."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """Return the name of the topic for a record; called in tasks, again after a failure."""


class KafkaRecordSerializationSchema(SerializationSchema):
    """Makes Kafka records; built by :meth:`builder`, copied into tasks by cloudpickle."""

    def __init__(
        self,
        topic: str | None,
        topic_selector: KafkaTopicSelector | None,
        key_schema: SerializationSchema | None,
        value_schema: SerializationSchema,
        extras: Mapping[str, Callable[[Any], Any]],
    ) -> None:
        self.topic = topic
        """The one topic of all records, None if it is chosen for each."""
        self._topic_selector = topic_selector
        self._key_schema = key_schema
        self._value_schema = value_schema
        self._extras = dict(extras)

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Begin a schema; it needs a topic and a schema for values."""
        return KafkaRecordSerializationSchemaBuilder()

    @property
    def is_plain(self) -> bool:
        """Whether its messages hold nothing but key and value."""
        return not self._extras

    def serialize(self, element: Any) -> bytes:
        """Return the bytes of the record's value."""
        return self._value_schema.serialize(element)

    def topic_of(self, element: Any) -> str:
        """Return the topic a record belongs into."""
        if self._topic_selector is None:
            assert self.topic is not None
            return self.topic
        topic = self._topic_selector.apply(element)
        if not isinstance(topic, str) or not topic:
            part, reason = "topic", "a topic selector must return a name"
            raise KafkaRecordError(part, topic, reason)
        return topic

    def encoder(self) -> Callable[[Any], Message]:
        """Return the function that makes messages; asked for once by each writer."""
        value_of = self._value_schema.serialize
        if self._key_schema is None and not self._extras:

            def encode_value(element: Any) -> Message:
                value: Any = value_of(element)
                if type(value) is not bytes:
                    value = _bytes_or_none("value", value)
                return {"value": value}

            return encode_value
        key_of = _no_key if self._key_schema is None else self._key_schema.serialize

        def encode(element: Any) -> Message:
            key: Any = key_of(element)
            value: Any = value_of(element)
            if type(value) is not bytes:
                value = _bytes_or_none("value", value)
            if type(key) is not bytes:
                key = _bytes_or_none("key", key)
            return {"key": key, "value": value}

        if not self._extras:
            return encode
        extras = [(name, provide, _CHECKS[name]) for name, provide in self._extras.items()]

        def encode_all(element: Any) -> Message:
            message = encode(element)
            for name, provide, check in extras:
                given = provide(element)
                if given is not None:
                    message[name] = check(given)
            return message

        return encode_all


class KafkaRecordSerializationSchemaBuilder:
    """Builds a :class:`KafkaRecordSerializationSchema`."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._topic_selector: KafkaTopicSelector | None = None
        self._key_schema: SerializationSchema | None = None
        self._value_schema: SerializationSchema | None = None
        self._extras: dict[str, Callable[[Any], Any]] = {}

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Write every record into one topic."""
        self._check_no_topic()
        if not isinstance(topic, str) or not topic:
            message = f"a topic must be a name; got {topic!r}"
            raise ValueError(message)
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: KafkaTopicSelector | Callable[[Any], str]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Choose the topic of each record."""
        self._check_no_topic()
        if not isinstance(topic_selector, KafkaTopicSelector):
            if not callable(topic_selector):
                message = "topic_selector must be KafkaTopicSelector or a callable"
                raise TypeError(message)
            topic_selector = _SelectingFunction(topic_selector)
        self._topic_selector = topic_selector
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Give records a key: those with the same one stay in order, in the same partition."""
        if self._key_schema is not None:
            message = "Key serializer already set."
            raise ValueError(message)
        self._key_schema = _schema(key_serialization_schema)
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Choose how values are written; None for a value is a tombstone."""
        if self._value_schema is not None:
            message = "Value serializer already set."
            raise ValueError(message)
        self._value_schema = _schema(value_serialization_schema)
        return self

    def set_header_provider(
        self, header_provider: HeaderProvider
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Give each record headers: names and bytes, or None for no headers."""
        return self._extra("headers", header_provider)

    def set_timestamp(
        self, timestamp: Callable[[Any], int | None]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Give each record a time in milliseconds; without one it gets that of its sending."""
        return self._extra("timestamp", timestamp)

    def set_partitioner(
        self, partitioner: Callable[[Any], int | None]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Choose each record's partition by number; None leaves it to Kafka's partitioner."""
        return self._extra("partition", partitioner)

    def build(self) -> KafkaRecordSerializationSchema:
        """Make the schema."""
        if self._value_schema is None:
            message = "No value serializer is configured."
            raise ValueError(message)
        if self._topic is None and self._topic_selector is None:
            message = "No topic selector is configured."
            raise ValueError(message)
        return KafkaRecordSerializationSchema(
            self._topic, self._topic_selector, self._key_schema, self._value_schema, self._extras
        )

    def _extra(
        self, name: str, provide: Callable[[Any], Any]
    ) -> KafkaRecordSerializationSchemaBuilder:
        if not callable(provide):
            message = f"the {name} of records need a function; got {provide!r}"
            raise TypeError(message)
        self._extras[name] = provide
        return self

    def _check_no_topic(self) -> None:
        if self._topic is not None or self._topic_selector is not None:
            message = "Topic selector already set."
            raise ValueError(message)


class _SelectingFunction(KafkaTopicSelector):
    def __init__(self, select: Callable[[Any], str]) -> None:
        self._select = select

    def apply(self, data: Any) -> str:
        return self._select(data)


def _schema(schema: SerializationSchema) -> SerializationSchema:
    if not isinstance(schema, SerializationSchema):
        message = f"a SerializationSchema is needed; got {schema!r}"
        raise TypeError(message)
    return schema


def _no_key(element: Any) -> None:
    return None


def _bytes_or_none(part: str, data: Any) -> bytes | None:
    if data is None:
        return None
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise KafkaRecordError(part, data, "its schema must return bytes")


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
