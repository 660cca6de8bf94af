"""Source that reads Kafka topics, and its builder."""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

import copy
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from penstock.common.serialization import DeserializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.contracts.input_settings import DEFAULT_INPUT_SETTINGS, InputSettings
from penstock.connectors.contracts.source import (
    Boundedness,
    Chunk,
    EnumeratorContext,
    RecordList,
    SourceEnumerator,
    SparkRead,
    SparkSource,
    SplitRange,
)
from penstock.connectors.driver_only import DriverOnly
from penstock.connectors.kafka.client import KafkaProperties, confluent
from penstock.connectors.kafka.partitions import KafkaTopicPartition, Subscription
from penstock.connectors.kafka.source.deserialization import (
    KafkaRecordDeserializationSchema,
    checked_batch,
    decode_with_timestamps,
)
from penstock.connectors.kafka.source.enumerator import KafkaEnumerator, KafkaSourceSettings
from penstock.connectors.kafka.source.offsets_initializer import KafkaOffsetsInitializer
from penstock.connectors.kafka.source.split_reader import read_split_range
from penstock.errors import InvalidJobError

if TYPE_CHECKING:
    import pyarrow as pa

_DISCOVERY_MILLISECONDS = 5 * 60 * 1000
_API_MILLISECONDS = 60 * 1000
_ON_LOST_RECORDS = "penstock.kafka.on-lost-records"


class KafkaSource(SparkSource):
    """Reads topics, each partition in order; created with :meth:`builder`.

    Every checkpoint holds the offsets read, so that each record counts once. Offsets committed to
    the consumer group follow the checkpoints and only serve monitoring.
    """

    def __init__(
        self,
        settings: KafkaSourceSettings,
        schema: KafkaRecordDeserializationSchema,
        boundedness: Boundedness,
    ) -> None:
        self._input_settings = DEFAULT_INPUT_SETTINGS
        # Tasks decode what Spark has read: the passwords stay on the driver.
        self._settings = DriverOnly(settings)
        self._topics = str(settings.subscription)
        self._only_topic = settings.subscription.only_topic()
        self._schema = schema
        self._boundedness = boundedness
        self._is_timed = False
        # One group for all micro-batches: Spark caches its consumers by group.
        self._group = settings.properties.get("group.id") or f"penstock-{uuid.uuid4().hex}"

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Return a builder of a source."""
        return KafkaSourceBuilder()

    def boundedness(self) -> Boundedness:
        return self._boundedness

    def type_info(self) -> TypeInformation | None:
        return self._schema.type_info()

    def with_timestamps(self) -> KafkaSource:
        timed = copy.copy(self)
        timed._is_timed = True
        return timed

    def with_settings(self, settings: InputSettings) -> KafkaSource:
        configured = copy.copy(self)
        configured._input_settings = settings
        return configured

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        confluent()
        return KafkaEnumerator(self._settings.get(), context)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        settings = self._settings.get()
        batches = read_split_range(
            settings.properties,
            split_range,
            self._columns(),
            settings.api_timeout,
            skip_lost_records=settings.skip_lost_records,
        )
        return self.read_batches(batches)

    def spark_read(self, ranges: Sequence[SplitRange]) -> SparkRead:
        settings = self._settings.get()
        by_topic = _by_topic(ranges)
        options = {
            **settings.properties.for_spark(),
            "kafka.group.id": self._group,
            "assign": json.dumps({topic: list(parts) for topic, parts in by_topic.items()}),
            "startingOffsets": _offsets_json(by_topic, "start"),
            "endingOffsets": _offsets_json(by_topic, "end"),
            "failOnDataLoss": "false" if settings.skip_lost_records else "true",
            "kafkaConsumer.pollTimeoutMs": str(int(settings.api_timeout * 1000)),
        }
        if "headers" in self._columns():
            options["includeHeaders"] = "true"
        return SparkRead(options, self._columns())

    def read_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[RecordList]:
        topic = self._only_topic or self._topics
        batches = (checked_batch(batch, self._input_settings, topic) for batch in batches)
        if self._is_timed:
            decode = partial(decode_with_timestamps, self._schema)
            return chain.from_iterable(map(decode, batches))
        return (self._schema.decode(batch, topic) for batch in batches)

    def spark_format(self) -> str:
        return "kafka"

    def missing_reader(self) -> str:
        return (
            "Spark has no Kafka reader: name the package spark-sql-kafka-0-10 of Spark's own "
            "version in spark.jars.packages, or its jars in spark.jars"
        )

    def _columns(self) -> tuple[str, ...]:
        """Return the columns to decode, and those that locate a record where that is needed."""
        columns = self._schema.columns()
        if self._is_timed:
            return tuple(dict.fromkeys([*columns, "topic", "partition", "offset", "timestamp"]))
        if not self._schema.may_refuse_records():
            return columns
        topic = () if self._only_topic else ("topic",)
        return tuple(dict.fromkeys([*columns, *topic, "partition", "offset"]))


class KafkaSourceBuilder:
    """Builds a :class:`KafkaSource`: servers, subscription and deserializer.

    By default it starts at the earliest offsets and never ends.
    """

    def __init__(self) -> None:
        self._properties: dict[str, Any] = {}
        self._subscription: Subscription | None = None
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._boundedness = Boundedness.CONTINUOUS_UNBOUNDED
        self._schema: KafkaRecordDeserializationSchema | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        """Set the bootstrap servers, as ``host:port`` separated by commas."""
        return self._set_text("set_bootstrap_servers", "bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> Self:
        """Set the consumer group that offsets are committed to when a checkpoint completes."""
        return self._set_text("set_group_id", "group.id", group_id)

    def set_topics(self, *topics: str) -> Self:
        """Subscribe to these topics, which must exist."""
        message = f"set_topics() takes names of topics; got {topics!r}"
        require(topics and all(isinstance(topic, str) and topic for topic in topics), message)
        return self._subscribe("topics", Subscription(topics=tuple(dict.fromkeys(topics))))

    def set_topic_pattern(self, topic_pattern: str) -> Self:
        """Subscribe to all topics, also future ones, whose name matches a regular expression."""
        try:
            re.compile(topic_pattern)
        except (re.error, TypeError) as error:
            message = (
                f"set_topic_pattern() takes a regular expression; got {topic_pattern!r}: {error}"
            )
            raise InvalidJobError(message) from None
        return self._subscribe("topic pattern", Subscription(pattern=topic_pattern))

    def set_partitions(self, partitions: Iterable[KafkaTopicPartition]) -> Self:
        """Subscribe to these partitions only."""
        wanted = list(partitions) if isinstance(partitions, Iterable) else []
        message = f"set_partitions() takes KafkaTopicPartition objects; got {partitions!r}"
        require(wanted and all(isinstance(p, KafkaTopicPartition) for p in wanted), message)
        return self._subscribe("partition set", Subscription(partitions=frozenset(wanted)))

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Set where the job starts reading when it first starts."""
        self._starting = _initializer(starting_offsets_initializer)
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Stop at these offsets, but run as an unbounded source until then."""
        self._stopping = _initializer(stopping_offsets_initializer)
        self._boundedness = Boundedness.CONTINUOUS_UNBOUNDED
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Stop at these offsets, resolved once when the job first starts."""
        self._stopping = _initializer(stopping_offsets_initializer)
        self._boundedness = Boundedness.BOUNDED
        return self

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> Self:
        """Deserialize the values, and ignore keys and everything else."""
        self._schema = KafkaRecordDeserializationSchema.value_only(deserialization_schema)
        return self

    def set_deserializer(self, record_deserializer: KafkaRecordDeserializationSchema) -> Self:
        """Deserialize any fields of Kafka's records."""
        message = (
            "set_deserializer() takes a KafkaRecordDeserializationSchema; "
            f"got {record_deserializer!r}"
        )
        require(isinstance(record_deserializer, KafkaRecordDeserializationSchema), message)
        self._schema = record_deserializer
        return self

    def set_client_id_prefix(self, prefix: str) -> Self:
        """Set the client id of this source, for the broker's logs and quotas."""
        return self._set_text("set_client_id_prefix", "client.id.prefix", prefix)

    def set_property(self, key: str, value: str) -> Self:
        """Set a property of the Kafka consumer or of the source."""
        self._properties[key] = value
        return self

    def set_properties(self, props: Mapping[str, Any]) -> Self:
        """Set many properties."""
        self._properties.update(props)
        return self

    def build(self) -> KafkaSource:
        """Build the source; raises `InvalidJobError` if something is missing."""
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
            reason = initializer.needs_group() if initializer is not None else None
            if reason is not None and not properties.get("group.id"):
                raise InvalidJobError(reason)
        bounded = self._boundedness is Boundedness.BOUNDED
        discovery = _milliseconds(
            properties, "partition.discovery.interval.ms", _DISCOVERY_MILLISECONDS
        )
        settings = KafkaSourceSettings(
            properties=properties,
            subscription=self._subscription,
            starting=self._starting,
            stopping=self._stopping,
            discovery_seconds=0.0 if bounded else discovery / 1000,
            api_timeout=_milliseconds(
                properties, "default.api.timeout.ms", _API_MILLISECONDS, least=1
            )
            / 1000,
            commits=bool(properties.get("group.id"))
            and properties.is_true("commit.offsets.on.checkpoint", True),
            skip_lost_records=properties.get(_ON_LOST_RECORDS, "fail") == "skip",
        )
        return KafkaSource(settings, self._schema, self._boundedness)

    def _checked_properties(self) -> KafkaProperties:
        properties = KafkaProperties(self._properties)
        if "client.id.prefix" in properties:
            properties = KafkaProperties(
                {**properties, "client.id": properties["client.id.prefix"]}
            )
        message = "Property bootstrap.servers is required but not provided"
        require(properties.get("bootstrap.servers"), message)
        options = ("enable.auto.commit", "commit.offsets.on.checkpoint")
        commits = any(properties.is_true(option, False) for option in options)
        message = "Property group.id is required when offset commit is enabled"
        require(properties.get("group.id") or not commits, message)
        if (policy := properties.get(_ON_LOST_RECORDS, "fail")) not in ("fail", "skip"):
            message = f"{_ON_LOST_RECORDS} must be fail or skip; got {policy!r}"
            raise InvalidJobError(message)
        return properties

    def _set_text(self, method: str, name: str, value: Any) -> Self:
        require(isinstance(value, str), f"{method}() takes a string; got {value!r}")
        return self.set_property(name, value)

    def _subscribe(self, mode: str, subscription: Subscription) -> Self:
        message = (
            f"Cannot use {mode} for consumption because {self._subscription} "
            "is already set for consumption."
        )
        require(self._subscription is None, message)
        self._subscription = subscription
        return self


def _initializer(initializer: KafkaOffsetsInitializer) -> KafkaOffsetsInitializer:
    message = f"offsets must be a KafkaOffsetsInitializer; got {initializer!r}"
    require(isinstance(initializer, KafkaOffsetsInitializer), message)
    return initializer


def _milliseconds(
    properties: KafkaProperties, name: str, default: int, least: int | None = None
) -> int:
    try:
        number = int(properties.get(name, default))
    except ValueError:
        message = f"{name} must be a number of milliseconds; got {properties[name]!r}"
        raise InvalidJobError(message) from None
    message = f"{name} must be at least {least} ms; got {number}"
    require(least is None or number >= least, message)
    return number


def _offsets_json(by_topic: Mapping[str, Mapping[int, SplitRange]], side: str) -> str:
    return json.dumps(
        {t: {n: getattr(part, side) for n, part in p.items()} for t, p in by_topic.items()}
    )


def _by_topic(ranges: Sequence[SplitRange]) -> dict[str, dict[int, SplitRange]]:
    topics: dict[str, dict[int, SplitRange]] = {}
    for part in ranges:
        place = KafkaTopicPartition.of_split(part.split)
        topics.setdefault(place.topic, {})[place.partition] = part
    return topics
