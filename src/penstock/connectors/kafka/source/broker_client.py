"""Queries Kafka for topics and offsets, and commits the offsets of a consumer group."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.connectors.kafka.client import KafkaProperties, confluent, new_admin, new_consumer
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.connectors.kafka.source.offsets_initializer import Offsets, Partitions

_log = logging.getLogger(__name__)

_NO_LEADER = 5
_CLOSE_SECONDS = 2.0
_COMMIT_RETRY_SECONDS = 1.0
_FLUSH_SECONDS = 3.0
_UNKNOWN_TOPIC = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
_NO_TOPIC_IDS = frozenset(
    {"UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE", "TOPIC_AUTHORIZATION_FAILED"}
)
# What brokers before 2.8 answer.
_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, slots=True)
class KnownOffsets:
    """Offsets of the partitions that answered, and the partitions that do not exist.

    A partition in neither has no leader at the moment, or its leader is unreachable.
    """

    offsets: Offsets
    missing: frozenset[KafkaTopicPartition] = frozenset()


class TopicId(msgspec.Struct, frozen=True, array_like=True):
    """Distinguishes a topic from a deleted one of the same name, within a cluster."""

    cluster: str
    topic: str

    def is_recreated(self, then: TopicId) -> bool:
        """Return whether the topic was recreated since; a move to another cluster is not that."""
        return self.cluster == then.cluster and self.topic != then.topic


class BrokerClient:
    """Answers queries about topics and offsets; each call may block for ``timeout`` seconds.

    Calls raise confluent-kafka's ``KafkaException`` if the cluster is unreachable or rejects the
    request. After a failed metadata request the clients are replaced: one whose metadata lists no
    broker, as the last, fenced broker of a cluster reports it, may never recover
    (confluentinc/librdkafka#5301). Not thread-safe.
    """

    def __init__(self, properties: KafkaProperties, timeout: float = 5.0) -> None:
        self._timeout = timeout
        self.servers = properties.get("bootstrap.servers", "")
        self.group = properties.get("group.id") or None
        self._kafka = confluent()
        self._admin = new_admin(properties)
        self._properties = properties
        self._group_consumer: Any = None
        self._on_committed: Callable[[str | None], None] = _ignore
        level = self._kafka.IsolationLevel
        committed_only = properties.get("isolation.level", "").lower() == "read_committed"
        self._isolation = level.READ_COMMITTED if committed_only else level.READ_UNCOMMITTED

    def topics(self) -> dict[str, int]:
        """Return all topics with their numbers of partitions."""
        found = self._metadata().topics
        return {name: len(topic.partitions) for name, topic in found.items() if not topic.error}

    def topic_ids(self, topics: Collection[str]) -> dict[str, TopicId]:
        """Return the ids of topics, as far as the brokers support them."""
        if not topics:
            return {}
        cluster = self._metadata().cluster_id or ""
        requested = self._kafka.TopicCollection(sorted(topics))
        answers = self._admin.describe_topics(requested, request_timeout=self._timeout)
        found: dict[str, TopicId] = {}
        for topic, answer in answers.items():
            try:
                topic_id = answer.result().topic_id
            except self._kafka.KafkaException as error:
                if error.args[0].name() not in _UNKNOWN_TOPIC | _NO_TOPIC_IDS:
                    raise
                continue
            if topic_id is not None and str(topic_id) != _NO_TOPIC_ID:
                found[topic] = TopicId(cluster, str(topic_id))
        return found

    def earliest(self, partitions: Partitions) -> Offsets:
        """Return the first available offsets."""
        return self._list(partitions, self._kafka.admin.OffsetSpec.earliest())

    def latest(self, partitions: Partitions) -> Offsets:
        """Return the end offsets: with read_committed, those of the last stable record."""
        return self._list(partitions, self._kafka.admin.OffsetSpec.latest())

    def known_earliest(self, partitions: Partitions) -> KnownOffsets:
        """Return the first offsets of the partitions that answer; raises if none does."""
        return self._list_known(partitions, self._kafka.admin.OffsetSpec.earliest())

    def known_latest(self, partitions: Partitions) -> KnownOffsets:
        """Return the end offsets of the partitions that answer; raises if none does."""
        return self._list_known(partitions, self._kafka.admin.OffsetSpec.latest())

    def at_time(self, partitions: Partitions, timestamp: int) -> Offsets:
        """Return the first offset at or after a timestamp, for partitions that have one."""
        spec = self._kafka.admin.OffsetSpec.for_timestamp(timestamp)
        return {p: offset for p, offset in self._list(partitions, spec).items() if offset >= 0}

    def committed(self, partitions: Partitions) -> Offsets:
        """Return the offsets the group has committed, for partitions that have one."""
        requested = [self._kafka.TopicPartition(p.topic, p.partition) for p in partitions]
        answers = self._consumer().committed(requested, timeout=self._timeout)
        for answer in answers:
            if answer.error is not None:
                raise self._kafka.KafkaException(answer.error)
        return {
            KafkaTopicPartition(answer.topic, answer.partition): answer.offset
            for answer in answers
            if answer.offset >= 0
        }

    def commit(self, offsets: Offsets, on_committed: Callable[[str | None], None]) -> None:
        """Start to commit offsets of the group; :meth:`poll` calls back, with an error if any.

        The consumer has no subscription, so it never joins the group.
        """
        wanted = [self._kafka.TopicPartition(p.topic, p.partition, o) for p, o in offsets.items()]
        consumer = self._consumer()
        self._on_committed = on_committed
        consumer.commit(offsets=wanted, asynchronous=True)

    def poll(self, timeout: float = 0.0) -> None:
        """Process the responses to commits."""
        if self._group_consumer is not None:
            self._group_consumer.poll(timeout)

    def close(self) -> None:
        """Close the clients; one that is blocked by an unreachable broker ends on its own."""
        if (closing := self._close_group_consumer()) is not None:
            closing.join(_CLOSE_SECONDS)

    def _close_group_consumer(self) -> threading.Thread | None:
        consumer, self._group_consumer = self._group_consumer, None
        if consumer is None:
            return None
        # In a thread: with a commit in flight close() blocks for most of a minute, which would
        # delay the end of the job.
        closing = threading.Thread(target=consumer.close, name="kafka-close", daemon=True)
        closing.start()
        return closing

    def _metadata(self) -> Any:
        try:
            return self._admin.list_topics(timeout=self._timeout)
        except self._kafka.KafkaException as error:
            # New clients; a commit in flight has failed with the old one.
            self._admin = new_admin(self._properties)
            self._close_group_consumer()
            self._call_back(str(error))
            raise

    def _list(self, partitions: Partitions, spec: Any) -> Offsets:
        answers = self._request_offsets(partitions, spec)
        return {partition: self._offset(answer) for partition, answer in answers.items()}

    def _list_known(self, partitions: Partitions, spec: Any) -> KnownOffsets:
        offsets: Offsets = {}
        missing: set[KafkaTopicPartition] = set()
        failure: Exception | None = None
        for partition, answer in self._request_offsets(partitions, spec).items():
            try:
                offsets[partition] = self._offset(answer)
            except self._kafka.KafkaException as error:
                if error.args[0].name() in _UNKNOWN_TOPIC:
                    missing.add(partition)
                else:
                    failure = error
        if failure is not None and not offsets:
            # If all requested partitions are deleted, the client only reports a missing leader.
            missing |= self._not_in_metadata(partitions)
            if missing < set(partitions):
                raise failure
        return KnownOffsets(offsets, frozenset(missing))

    def _not_in_metadata(self, partitions: Partitions) -> set[KafkaTopicPartition]:
        topics = self._metadata().topics
        return {
            p
            for p in partitions
            if p.topic not in topics
            or not (topics[p.topic].error or p.partition in topics[p.topic].partitions)
        }

    def _request_offsets(self, partitions: Partitions, spec: Any) -> dict[KafkaTopicPartition, Any]:
        if not partitions:
            return {}
        requested = {self._kafka.TopicPartition(p.topic, p.partition): spec for p in partitions}
        answers = self._admin.list_offsets(
            requested, isolation_level=self._isolation, request_timeout=self._timeout
        )
        return {KafkaTopicPartition(p.topic, p.partition): a for p, a in answers.items()}

    def _offset(self, answer: Any) -> int:
        offset: int = answer.result().offset
        # A response cut short by the broker's death has no offset, and no error either.
        if offset == self._kafka.OFFSET_INVALID:
            reason = "the response has no offset for a partition"
            raise self._kafka.KafkaException(self._kafka.KafkaError(_NO_LEADER, reason))
        return offset

    def _consumer(self) -> Any:
        if self._group_consumer is None:
            self._group_consumer = new_consumer(self._properties, on_commit=self._on_commit)
        return self._group_consumer

    def _on_commit(self, error: Any, partitions: list[Any]) -> None:
        errors = [error, *(p.error for p in partitions)]
        first = next((e for e in errors if e is not None), None)
        self._call_back(None if first is None else first.str())

    def _call_back(self, error: str | None) -> None:
        on_committed, self._on_committed = self._on_committed, _ignore
        on_committed(error)


def _ignore(error: str | None) -> None:
    """Stand in for the callback while no commit is in flight."""


class OffsetCommitter:
    """Commits the most recently requested offsets of a group, one request at a time.

    They are for monitoring and other jobs: the job itself resumes from its checkpoints, so a failed
    commit is only retried and logged. :meth:`request` may be called by any thread, everything else
    by one.
    """

    def __init__(self, broker: BrokerClient) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._requested: Offsets = {}
        self._in_flight: Offsets = {}
        self._committed: Offsets = {}
        self._not_before = 0.0
        self._failing = False

    def request(self, offsets: Offsets) -> None:
        """Request these offsets to be committed; they replace those of earlier requests."""
        with self._lock:
            self._requested = offsets

    def poll(self) -> None:
        """Process responses and start a commit if one is due; never blocks."""
        self._broker.poll()
        if self._in_flight or time.monotonic() < self._not_before:
            return
        if changed := self._changed():
            self._in_flight = changed
            try:
                self._broker.commit(changed, self._on_committed)
            except confluent().KafkaException as error:
                self._on_committed(str(error))

    def flush(self) -> None:
        """Try for a few seconds to commit everything that was requested."""
        self._not_before = 0.0
        deadline = time.monotonic() + _FLUSH_SECONDS
        while (self._changed() or self._in_flight) and time.monotonic() < deadline:
            self.poll()
            self._broker.poll(0.05)

    def _changed(self) -> Offsets:
        with self._lock:
            requested = self._requested
        return {p: offset for p, offset in requested.items() if self._committed.get(p) != offset}

    def _on_committed(self, error: str | None) -> None:
        if error is None:
            self._committed |= self._in_flight
        else:
            self._not_before = time.monotonic() + _COMMIT_RETRY_SECONDS
            if not self._failing:
                group = self._broker.group
                _log.warning("Committing the offsets of group %r failed: %s", group, error)
        self._failing = error is not None
        self._in_flight = {}
