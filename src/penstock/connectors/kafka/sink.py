"""Sink that writes to Kafka topics."""
# ruff: noqa: D102 - the contract documents the methods of a sink

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from penstock.connectors.committer import Committer, CommitterContext
from penstock.connectors.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.durable import make_directory
from penstock.connectors.kafka.client import KafkaProperties, new_producer
from penstock.connectors.kafka.direct_writer import DirectWriter
from penstock.connectors.kafka.sending import (
    answer_seconds,
    check_numbers,
    largest_message,
    limits_of_messages,
)
from penstock.connectors.kafka.serialization import KafkaRecordSerializationSchema
from penstock.connectors.kafka.sink_committer import KafkaCommitter, OnLostMarker
from penstock.connectors.kafka.sink_publisher import DirectPublisher, StagedPublisher
from penstock.connectors.kafka.staged_part import Account
from penstock.connectors.kafka.staging_writer import StagingWriter
from penstock.connectors.kafka.topic_check import check_topic
from penstock.connectors.sink import (
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.staging_area import StagingArea
from penstock.ids import attempt_number

__all__ = ["KafkaSink", "KafkaSinkBuilder"]

_LONGEST_PREFIX = 64_000
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
    def servers(self) -> str:
        return self.properties["bootstrap.servers"]

    def in_tasks(self) -> _Settings:
        """Return what tasks need; without passwords, unless they talk to brokers."""
        if self.guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            return self
        return replace(self, properties=limits_of_messages(self.properties))


class KafkaSink(Sink):
    """Records into Kafka topics, with the guarantee it was built with.

    Exactly once, records wait in the job's own directory until their checkpoint is completed.
    They are then published by the driver in one transaction, and the same transaction moves a
    marker that tells a restored job what is there already. Readers need ``read_committed``.
    Otherwise the tasks send records as they come.
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        # Of this process: a second producer of an attempt would fence the first.
        self._committers: WeakValueDictionary[tuple[Account, str], KafkaCommitter] = (
            WeakValueDictionary()
        )

    def __reduce__(self) -> tuple[type[KafkaSink], tuple[_Settings]]:
        return KafkaSink, (self._settings.in_tasks(),)

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Begin a sink; it needs bootstrap servers and a record serializer."""
        return KafkaSinkBuilder()

    def writer(self, context: WriterContext) -> SinkWriter:
        settings = self._settings
        if settings.guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            return DirectWriter(settings.serializer, settings.properties)
        work_dir = context.work_dir or context.staging_dir
        return StagingWriter(
            context,
            _area(context, work_dir),
            settings.serializer,
            largest_message(settings.properties),
        )

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        settings = self._settings
        if settings.guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            if settings.serializer.topic is not None:
                check_topic(
                    new_producer(settings.properties),
                    settings.serializer.topic,
                    settings.servers,
                    answer_seconds(settings.properties),
                )
            return DirectPublisher()
        attempt = attempt_number(context.attempt)
        assert attempt is not None
        account = self._account(context)
        committer = self._committers.get((account, context.attempt))
        if committer is not None:
            committer.begin(attempt)
        else:
            with closing(self._new_committer(context)) as passing:
                passing.begin(attempt)
        make_directory(context.work_dir)
        return StagedPublisher(account, _area(context, context.work_dir), attempt)

    def committer(self, context: CommitterContext) -> Committer | None:
        if self._settings.guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            return None
        committer = self._new_committer(context)
        self._committers[self._account(context), context.attempt] = committer
        return committer

    def _new_committer(self, context: PublisherContext | CommitterContext) -> KafkaCommitter:
        if "bootstrap.servers" not in self._settings.properties:
            message = (
                "Kafka's properties stay where the sink was built, and are not in copies of it"
            )
            raise ValueError(message)
        return KafkaCommitter(
            self._settings.properties,
            self._account(context),
            _area(context, context.work_dir),
            self._settings.on_lost_marker,
        )

    def _account(self, context: PublisherContext | CommitterContext) -> Account:
        transactional_id = f"{self._settings.prefix}-{context.job}-{context.work_dir.name}"
        # Checkpoints and attempts are counted anew in another job of the same name.
        group = f"{transactional_id}-{context.birth}" if context.birth else transactional_id
        return Account(transactional_id, group, self._settings.marker_topic)


def _area(
    context: WriterContext | PublisherContext | CommitterContext, work_dir: Path
) -> StagingArea:
    return StagingArea(work_dir, context.job, work_dir.name, context.attempt)


class KafkaSinkBuilder:
    """Builds a :class:`KafkaSink`."""

    def __init__(self) -> None:
        self._properties = KafkaProperties()
        self._serializer: KafkaRecordSerializationSchema | None = None
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix: str | None = None
        self._marker_topic: str | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Name brokers to ask first, as ``host:port``, separated by commas."""
        return self.set_property("bootstrap.servers", _text("bootstrapServers", bootstrap_servers))

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Choose the guarantee; NONE unless said otherwise."""
        if not isinstance(delivery_guarantee, DeliveryGuarantee):
            message = f"deliveryGuarantee must be a DeliveryGuarantee; got {delivery_guarantee!r}"
            raise TypeError(message)
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Begin transactional ids with this; no other job on the cluster may use it.

        Keep it across restarts. Needed for exactly once.
        """
        prefix = _text("transactionalIdPrefix", transactional_id_prefix)
        if len(prefix.encode()) > _LONGEST_PREFIX:
            message = (
                "The configured prefix is too long and the resulting transactionalIdPrefix might "
                "exceed Kafka's transactionalIdPrefix size."
            )
            raise ValueError(message)
        self._prefix = prefix
        return self

    def set_record_serializer(
        self, record_serializer: KafkaRecordSerializationSchema
    ) -> KafkaSinkBuilder:
        """Choose how records become Kafka records."""
        if not isinstance(record_serializer, KafkaRecordSerializationSchema):
            message = f"recordSerializer must be built by its builder; got {record_serializer!r}"
            raise TypeError(message)
        self._serializer = record_serializer
        return self

    def set_property(self, key: str, value: Any) -> KafkaSinkBuilder:
        """Set a property of Kafka's producer."""
        self._properties = self._properties.with_values({key: value})
        return self

    def set_marker_topic(self, topic: str) -> KafkaSinkBuilder:
        """Keep the marker of an exactly-once sink at this topic.

        That is an offset, no record. Needed with a topic selector; else it is the sink's topic.
        """
        self._marker_topic = _text("markerTopic", topic)
        return self

    def build(self) -> KafkaSink:
        """Make the sink."""
        if not self._properties.get("bootstrap.servers"):
            message = "bootstrapServers: call set_bootstrap_servers()"
            raise ValueError(message)
        if self._serializer is None:
            message = "recordSerializer: call set_record_serializer()"
            raise ValueError(message)
        check_numbers(self._properties)
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
    if not settings.prefix:
        message = (
            "EXACTLY_ONCE delivery guarantee requires a transactionalIdPrefix to be set to provide "
            "unique transaction names across multiple KafkaSinks writing to the same Kafka cluster."
        )
        raise ValueError(message)
    if not settings.marker_topic:
        message = (
            "EXACTLY_ONCE with a topic selector needs set_marker_topic(): a topic that exists, "
            "where the sink marks what is published"
        )
        raise ValueError(message)
    # The account names the transactional id; one of the user's would be another.
    properties = {k: v for k, v in settings.properties.items() if k != "transactional.id"}
    return replace(settings, properties=KafkaProperties(properties))


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        message = f"{name} must be a text; got {value!r}"
        raise TypeError(message)
    return value


def _on_lost_marker(properties: KafkaProperties) -> OnLostMarker:
    text = properties.get(_ON_LOST_MARKER, OnLostMarker.FAIL.value)
    try:
        return OnLostMarker(text)
    except ValueError:
        message = f"{_ON_LOST_MARKER} must be 'fail', 'skip' or 'publish'; got {text!r}"
        raise ValueError(message) from None
