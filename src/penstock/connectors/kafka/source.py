"""Source of the records in Kafka's topics."""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.common.serialization import DeserializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.kafka.client import KafkaProperties, confluent
from penstock.connectors.kafka.enumerator import KafkaEnumerator, Reading
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer
from penstock.connectors.kafka.partitions import KafkaTopicPartition, Subscription
from penstock.connectors.kafka.reading import read_offsets
from penstock.connectors.kafka.records import KafkaRecordDeserializationSchema
from penstock.connectors.kafka.timed_records import timed_chunks
from penstock.connectors.kept_home import KeptHome
from penstock.connectors.source import (
    Boundedness,
    Chunk,
    EnumeratorContext,
    Listed,
    SourceEnumerator,
    SparkRead,
    SparkSource,
    SplitRange,
)
from penstock.errors import InvalidJobError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KafkaSource", "KafkaSourceBuilder"]

_DISCOVERY_MILLISECONDS = 5 * 60 * 1000
_API_MILLISECONDS = 60 * 1000
_ON_LOST_RECORDS = "penstock.kafka.on-lost-records"


class KafkaSource(SparkSource):
    """Records of topics, each partition in its order, made with :meth:`builder`.

    The offsets read are part of every checkpoint, so that each record counts once. Offsets
    committed to the consumer group follow the checkpoints and are for others to look at.
    """

    def __init__(
        self,
        reading: Reading,
        schema: KafkaRecordDeserializationSchema,
        boundedness: Boundedness,
        *,
        is_timed: bool = False,
    ) -> None:
        # Tasks get what Spark has read, and need no password for it.
        self._reading = KeptHome(reading)
        self._topics = str(reading.subscription)
        self._only_topic = reading.subscription.only_topic()
        self._schema = schema
        self._boundedness = boundedness
        self._is_timed = is_timed
        # One group for all micro-batches: Spark keeps open consumers by it.
        self._group = reading.properties.get("group.id") or f"penstock-{uuid.uuid4().hex}"

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Begin to describe a source."""
        return KafkaSourceBuilder()

    def boundedness(self) -> Boundedness:
        return self._boundedness

    def type_info(self) -> TypeInformation | None:
        return self._schema.type_info()

    def with_time(self) -> KafkaSource:
        return KafkaSource(self._reading.get(), self._schema, self._boundedness, is_timed=True)

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        confluent()
        return KafkaEnumerator(self._reading.get(), context)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        reading = self._reading.get()
        batches = read_offsets(
            reading.properties,
            split_range,
            self._columns(),
            reading.start_seconds,
            skips_lost=reading.skips_lost,
        )
        return self.read_batches(batches)

    def spark_read(self, ranges: Sequence[SplitRange]) -> SparkRead:
        reading = self._reading.get()
        by_topic = _by_topic(ranges)
        options = {
            **reading.properties.for_spark(),
            "kafka.group.id": self._group,
            "assign": json.dumps({topic: list(parts) for topic, parts in by_topic.items()}),
            "startingOffsets": json.dumps(
                {t: {n: part.start for n, part in p.items()} for t, p in by_topic.items()}
            ),
            "endingOffsets": json.dumps(
                {t: {n: part.end for n, part in p.items()} for t, p in by_topic.items()}
            ),
            "failOnDataLoss": "false" if reading.skips_lost else "true",
            "kafkaConsumer.pollTimeoutMs": str(int(reading.start_seconds * 1000)),
        }
        if "headers" in self._columns():
            options["includeHeaders"] = "true"
        return SparkRead(options, self._columns())

    def read_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Listed]:
        topic = self._only_topic or self._topics
        if self._is_timed:
            return (chunk for batch in batches for chunk in timed_chunks(self._schema, batch))
        return (self._schema.decode(batch, topic) for batch in batches)

    def spark_format(self) -> str:
        return "kafka"

    def missing_reader(self) -> str:
        return (
            "Spark has no Kafka reader: name the package spark-sql-kafka-0-10 of Spark's own "
            "version in spark.jars.packages, or its jars in spark.jars"
        )

    def _columns(self) -> tuple[str, ...]:
        """Name what to read: what is decoded, and where it came from if that may be asked."""
        columns = self._schema.columns()
        if self._is_timed:
            return tuple(dict.fromkeys([*columns, "topic", "partition", "offset", "timestamp"]))
        if not self._schema.places_needed():
            return columns
        topic = () if self._only_topic else ("topic",)
        return tuple(dict.fromkeys([*columns, *topic, "partition", "offset"]))


class KafkaSourceBuilder:
    """Describes a :class:`KafkaSource`: servers, what to read, and how to decode it.

    Starts at the earliest offsets and never ends, unless told otherwise.
    """

    def __init__(self) -> None:
        self._properties: dict[str, Any] = {}
        self._subscription: Subscription | None = None
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._boundedness = Boundedness.CONTINUOUS_UNBOUNDED
        self._schema: KafkaRecordDeserializationSchema | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Name brokers to ask first: ``host:port``, several with commas."""
        return self._set_text("set_bootstrap_servers", "bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Name the consumer group that offsets are committed to when a checkpoint completes."""
        return self._set_text("set_group_id", "group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read these topics, which must exist."""
        if not topics or not all(isinstance(topic, str) and topic for topic in topics):
            message = f"set_topics() takes names of topics; got {topics!r}"
            raise InvalidJobError(message)
        return self._subscribe("topics", Subscription(topics=tuple(dict.fromkeys(topics))))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all topics whose whole name fits a regular expression, also later ones."""
        try:
            re.compile(topic_pattern)
        except (re.error, TypeError) as error:
            message = f"a topic pattern is a regular expression; got {topic_pattern!r}: {error}"
            raise InvalidJobError(message) from None
        return self._subscribe("topic pattern", Subscription(pattern=topic_pattern))

    def set_partitions(self, partitions: Iterable[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Read these partitions only."""
        wanted = list(partitions) if isinstance(partitions, Iterable) else []
        if not wanted or not all(isinstance(p, KafkaTopicPartition) for p in wanted):
            message = f"set_partitions() takes KafkaTopicPartition objects; got {partitions!r}"
            raise InvalidJobError(message)
        return self._subscribe("partition set", Subscription(partitions=frozenset(wanted)))

    def set_starting_offsets(
        self, starting_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Say where the job begins when it starts for the first time."""
        self._starting = _initializer(starting_offsets_initializer)
        return self

    def set_unbounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Stop at these offsets, in a job that is a stream nevertheless."""
        self._stopping = _initializer(stopping_offsets_initializer)
        self._boundedness = Boundedness.CONTINUOUS_UNBOUNDED
        return self

    def set_bounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Stop at these offsets, looked up once when the job starts for the first time."""
        self._stopping = _initializer(stopping_offsets_initializer)
        self._boundedness = Boundedness.BOUNDED
        return self

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema
    ) -> KafkaSourceBuilder:
        """Make records of the values, and leave keys and all else alone."""
        self._schema = KafkaRecordDeserializationSchema.value_only(deserialization_schema)
        return self

    def set_deserializer(
        self, record_deserializer: KafkaRecordDeserializationSchema
    ) -> KafkaSourceBuilder:
        """Make records of any parts of Kafka's records."""
        if not isinstance(record_deserializer, KafkaRecordDeserializationSchema):
            message = (
                "set_deserializer() takes a KafkaRecordDeserializationSchema; "
                f"got {record_deserializer!r}"
            )
            raise InvalidJobError(message)
        self._schema = record_deserializer
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Name the clients of this source for the broker's logs and quotas."""
        return self._set_text("set_client_id_prefix", "client.id.prefix", prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Set a property of Kafka's consumer or of the source."""
        self._properties[key] = value
        return self

    def set_properties(self, props: Mapping[str, Any]) -> KafkaSourceBuilder:
        """Set many properties."""
        self._properties.update(props)
        return self

    def build(self) -> KafkaSource:
        """Make the source, or say what is missing."""
        properties = self._checked_properties()
        if self._subscription is None:
            message = (
                "No subscribe mode is specified, "
                "should be one of topics, topic pattern and partition set."
            )
            raise InvalidJobError(message)
        if self._schema is None:
            message = "Deserialization schema is required but not provided."
            raise InvalidJobError(message)
        for initializer in (self._starting, self._stopping):
            why = initializer.needs_group() if initializer is not None else None
            if why is not None and not properties.get("group.id"):
                raise InvalidJobError(why)
        bounded = self._boundedness is Boundedness.BOUNDED
        discovery = _milliseconds(
            properties, "partition.discovery.interval.ms", _DISCOVERY_MILLISECONDS
        )
        reading = Reading(
            properties=properties,
            subscription=self._subscription,
            starting=self._starting,
            stopping=self._stopping,
            discovery_seconds=0.0 if bounded else discovery / 1000,
            start_seconds=_milliseconds(
                properties, "default.api.timeout.ms", _API_MILLISECONDS, least=1
            )
            / 1000,
            commits=bool(properties.get("group.id"))
            and properties.is_true("commit.offsets.on.checkpoint", True),
            skips_lost=properties.get(_ON_LOST_RECORDS, "fail") == "skip",
        )
        return KafkaSource(reading, self._schema, self._boundedness)

    def _checked_properties(self) -> KafkaProperties:
        properties = KafkaProperties(self._properties)
        if not properties.get("bootstrap.servers"):
            message = "Property bootstrap.servers is required but not provided"
            raise InvalidJobError(message)
        by_hand = properties.is_true("enable.auto.commit", False) or properties.is_true(
            "commit.offsets.on.checkpoint", False
        )
        if by_hand and not properties.get("group.id"):
            message = "Property group.id is required when offset commit is enabled"
            raise InvalidJobError(message)
        if properties.get(_ON_LOST_RECORDS, "fail") not in ("fail", "skip"):
            message = f"{_ON_LOST_RECORDS} is fail or skip; got {properties[_ON_LOST_RECORDS]!r}"
            raise InvalidJobError(message)
        prefix = properties.get("client.id.prefix")
        return properties if prefix is None else properties.with_values({"client.id": prefix})

    def _set_text(self, method: str, name: str, value: Any) -> KafkaSourceBuilder:
        if not isinstance(value, str):
            message = f"{method}() takes a text; got {value!r}"
            raise InvalidJobError(message)
        return self.set_property(name, value)

    def _subscribe(self, mode: str, subscription: Subscription) -> KafkaSourceBuilder:
        if self._subscription is not None:
            message = (
                f"Cannot use {mode} for consumption because {self._subscription} "
                "is already set for consumption."
            )
            raise InvalidJobError(message)
        self._subscription = subscription
        return self


def _initializer(initializer: Any) -> KafkaOffsetsInitializer:
    if not isinstance(initializer, KafkaOffsetsInitializer):
        message = f"offsets are set by a KafkaOffsetsInitializer; got {initializer!r}"
        raise InvalidJobError(message)
    return initializer


def _milliseconds(
    properties: KafkaProperties, name: str, default: int, least: int | None = None
) -> int:
    try:
        number = int(properties.get(name, default))
    except ValueError:
        message = f"{name} is a number of milliseconds; got {properties[name]!r}"
        raise InvalidJobError(message) from None
    if least is not None and number < least:
        message = f"{name} is a number of milliseconds, {least} or more; got {number}"
        raise InvalidJobError(message)
    return number


def _by_topic(ranges: Sequence[SplitRange]) -> dict[str, dict[int, SplitRange]]:
    topics: dict[str, dict[int, SplitRange]] = {}
    for part in ranges:
        place = KafkaTopicPartition.of_split(part.split)
        topics.setdefault(place.topic, {})[place.partition] = part
    return topics
