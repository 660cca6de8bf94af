"""Sink that writes to Kafka topics, and its builder."""
# ruff: noqa: D102 - the contract documents the methods of a sink

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from weakref import WeakValueDictionary

from penstock.connectors.contracts.builder_checks import require, require_text
from penstock.connectors.contracts.committer import Committer, CommitterContext
from penstock.connectors.contracts.sink import (
    DeliveryGuarantee,
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.kafka.client import KafkaProperties, new_producer
from penstock.connectors.kafka.sink.committable import TransactionalIdentity
from penstock.connectors.kafka.sink.committer import KafkaCommitter, OnLostMarker
from penstock.connectors.kafka.sink.producer import (
    check_numeric_properties,
    check_topic,
    max_block_seconds,
    max_message_bytes,
    message_limits,
)
from penstock.connectors.kafka.sink.publisher import KafkaPublisher
from penstock.connectors.kafka.sink.serialization import KafkaRecordSerializationSchema
from penstock.connectors.kafka.sink.writer import ExactlyOnceKafkaWriter, KafkaWriter
from penstock.connectors.staging.staged_output import ImmediatePublisher
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.ids import attempt_number
from penstock.storage.durable_files import make_directory

_MAX_PREFIX_BYTES = 64_000
_ON_LOST_MARKER = "penstock.kafka.on-lost-marker"


@dataclass(frozen=True, slots=True)
class _Settings:
    properties: KafkaProperties
    serializer: KafkaRecordSerializationSchema
    guarantee: DeliveryGuarantee
    prefix: str
    marker_topic: str
    on_lost_marker: OnLostMarker

    @property
    def exactly_once(self) -> bool:
        return self.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    def for_tasks(self) -> _Settings:
        """Return what tasks need: without passwords, unless they connect to brokers."""
        if not self.exactly_once:
            return self
        return replace(self, properties=message_limits(self.properties))


class KafkaSink(Sink):
    """Writes records to Kafka topics, with the guarantee it was built with.

    Exactly once, records are staged in the job's directory until their checkpoint is complete. The
    driver then publishes them in a transaction that also moves the commit marker, from which a
    restored job learns what is already committed. Readers need ``read_committed``. With the other
    guarantees the tasks send records immediately.
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        # Per process: a second producer of an attempt would fence the first.
        self._committers: WeakValueDictionary[tuple[TransactionalIdentity, str], KafkaCommitter] = (
            WeakValueDictionary()
        )

    def __reduce__(self) -> tuple[type[KafkaSink], tuple[_Settings]]:
        return KafkaSink, (self._settings.for_tasks(),)

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Return a builder; it needs bootstrap servers and a record serializer."""
        return KafkaSinkBuilder()

    def writer(self, context: WriterContext) -> SinkWriter:
        settings = self._settings
        if not settings.exactly_once:
            return KafkaWriter(settings.serializer, settings.properties)
        return ExactlyOnceKafkaWriter(
            context,
            _staging(context, context.work_dir or context.staging_dir),
            settings.serializer,
            max_message_bytes(settings.properties),
        )

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        settings = self._settings
        if not settings.exactly_once:
            if settings.serializer.topic is not None:
                check_topic(
                    new_producer(settings.properties),
                    settings.serializer.topic,
                    settings.properties["bootstrap.servers"],
                    max_block_seconds(settings.properties),
                )
            return ImmediatePublisher(context, lambda data: None)  # the brokers have the records
        attempt = attempt_number(context.attempt)
        assert attempt is not None
        identity = self._identity(context)
        committer = self._committers.get((identity, context.attempt))
        if committer is not None:
            committer.begin(attempt)
        else:
            with closing(self._new_committer(context)) as temporary:
                temporary.begin(attempt)
        make_directory(context.work_dir)
        return KafkaPublisher(identity, _staging(context, context.work_dir), attempt)

    def committer(self, context: CommitterContext) -> Committer | None:
        if not self._settings.exactly_once:
            return None
        committer = self._new_committer(context)
        self._committers[self._identity(context), context.attempt] = committer
        return committer

    def _new_committer(self, context: PublisherContext | CommitterContext) -> KafkaCommitter:
        message = "the Kafka properties are only in the sink that was built, not in its copies"
        require("bootstrap.servers" in self._settings.properties, message, ValueError)
        return KafkaCommitter(
            self._settings.properties,
            self._identity(context),
            _staging(context, context.work_dir),
            self._settings.on_lost_marker,
        )

    def _identity(self, context: PublisherContext | CommitterContext) -> TransactionalIdentity:
        transactional_id = f"{self._settings.prefix}-{context.job}-{context.work_dir.name}"
        # Another job of the same name counts its attempts and checkpoints from 1 again.
        instance = context.job_instance
        group = f"{transactional_id}-{instance}" if instance else transactional_id
        return TransactionalIdentity(transactional_id, group, self._settings.marker_topic)


def _staging(
    context: WriterContext | PublisherContext | CommitterContext, work_dir: Path
) -> StagingDirectory:
    options = context.storage_options if isinstance(context, CommitterContext) else {}
    return StagingDirectory.hidden_in(
        work_dir, context.job, work_dir.name, context.attempt, context.store, options
    )


class KafkaSinkBuilder:
    """Builds a :class:`KafkaSink`."""

    def __init__(self) -> None:
        self._properties = KafkaProperties()
        self._serializer: KafkaRecordSerializationSchema | None = None
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix: str | None = None
        self._marker_topic: str | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        """Set the bootstrap servers, as ``host:port`` separated by commas."""
        return self.set_property(
            "bootstrap.servers", require_text("bootstrapServers", bootstrap_servers)
        )

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> Self:
        """Set the delivery guarantee; NONE by default."""
        message = f"deliveryGuarantee must be a DeliveryGuarantee; got {delivery_guarantee!r}"
        require(isinstance(delivery_guarantee, DeliveryGuarantee), message, TypeError)
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> Self:
        """Set the prefix of transactional ids; no other job on the cluster may use it.

        Keep it across restarts. Required for exactly once.
        """
        prefix = require_text("transactionalIdPrefix", transactional_id_prefix)
        message = (
            "The configured prefix is too long and the resulting transactionalIdPrefix might "
            "exceed Kafka's transactionalIdPrefix size."
        )
        require(len(prefix.encode()) <= _MAX_PREFIX_BYTES, message, ValueError)
        self._prefix = prefix
        return self

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> Self:
        """Set how records become Kafka records."""
        message = f"recordSerializer must be built by its builder; got {record_serializer!r}"
        require(isinstance(record_serializer, KafkaRecordSerializationSchema), message, TypeError)
        self._serializer = record_serializer
        return self

    def set_property(self, key: str, value: Any) -> Self:
        """Set a property of the Kafka producer."""
        self._properties = KafkaProperties({**self._properties, key: value})
        return self

    def set_marker_topic(self, topic: str) -> Self:
        """Set the topic whose committed offset is the commit marker of an exactly-once sink.

        No record is written to it. Required with a topic selector; by default the sink's topic.
        """
        self._marker_topic = require_text("markerTopic", topic)
        return self

    def build(self) -> KafkaSink:
        """Build the sink."""
        message = "bootstrapServers: call set_bootstrap_servers()"
        require(self._properties.get("bootstrap.servers"), message, ValueError)
        if self._serializer is None:
            message = "recordSerializer: call set_record_serializer()"
            raise ValueError(message)
        check_numeric_properties(self._properties)
        settings = _Settings(
            self._properties,
            self._serializer,
            self._guarantee,
            self._prefix or "",
            self._marker_topic or self._serializer.topic or "",
            _on_lost_marker(self._properties),
        )
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            settings = _checked(settings)
        return KafkaSink(settings)


def _checked(settings: _Settings) -> _Settings:
    message = (
        "EXACTLY_ONCE delivery guarantee requires a transactionalIdPrefix to be set to provide "
        "unique transaction names across multiple KafkaSinks writing to the same Kafka cluster."
    )
    require(settings.prefix, message, ValueError)
    message = (
        "EXACTLY_ONCE with a topic selector needs set_marker_topic(): an existing topic "
        "whose committed offset holds the commit marker"
    )
    require(settings.marker_topic, message, ValueError)
    # The sink derives its transactional ids; one set by the user would override them.
    properties = {k: v for k, v in settings.properties.items() if k != "transactional.id"}
    return replace(settings, properties=KafkaProperties(properties))


def _on_lost_marker(properties: KafkaProperties) -> OnLostMarker:
    text = properties.get(_ON_LOST_MARKER, OnLostMarker.FAIL.value)
    message = f"{_ON_LOST_MARKER} must be 'fail', 'skip' or 'publish'; got {text!r}"
    require(text in {policy.value for policy in OnLostMarker}, message, ValueError)
    return OnLostMarker(text)
