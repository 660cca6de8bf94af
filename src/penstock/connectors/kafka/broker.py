"""The questions a source asks the broker, and the offsets it commits there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.connectors.kafka.client import KafkaProperties, confluent, new_admin, new_consumer
from penstock.connectors.kafka.offsets import Offsets
from penstock.connectors.kafka.partitions import KafkaTopicPartition

__all__ = ["Broker", "Told", "TopicId"]

_NO_LEADER = 5
_CLOSE_SECONDS = 2.0
# Of brokers before 2.8.
_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of some partitions: their offsets, and which of them do not exist.

    Of those in neither, nothing is known now: nobody leads them, or their leader is away.
    """

    offsets: Offsets
    gone: frozenset[KafkaTopicPartition] = frozenset()


class TopicId(msgspec.Struct, frozen=True, array_like=True):
    """Tells a topic from any other that had its name before, within a cluster."""

    cluster: str
    topic: str

    def is_another(self, then: TopicId) -> bool:
        """Whether the topic was made anew since; one moved to another cluster was not."""
        return self.cluster == then.cluster and self.topic != then.topic


class Broker:
    """Answers about topics and offsets; every call may block for some ``seconds`` and raise.

    What is raised is a ``KafkaException`` of confluent-kafka: the broker is away, or does not
    want. Who cannot even list topics is followed by a new client: one that was told of no broker
    at all, as the last broker of a cluster tells while it is fenced, may never ask anybody again
    (librdkafka's issue 5301). Used by one thread at a time.
    """

    def __init__(self, properties: KafkaProperties, seconds: float = 5.0) -> None:
        self._seconds = seconds
        self.servers = properties.get("bootstrap.servers", "")
        self.group = properties.get("group.id") or None
        self._kafka = confluent()
        self._admin = new_admin(properties)
        self._properties = properties
        self._group_consumer: Any = None
        self._done: Callable[[str | None], None] = _ignore
        error = self._kafka.KafkaError
        self._not_there = (
            error.UNKNOWN_TOPIC_OR_PART,
            error._UNKNOWN_TOPIC,
            error._UNKNOWN_PARTITION,
        )
        self._not_told = (
            error.UNSUPPORTED_VERSION,
            error._UNSUPPORTED_FEATURE,
            error.TOPIC_AUTHORIZATION_FAILED,
        )
        level = self._kafka.IsolationLevel
        committed_only = properties.get("isolation.level", "").lower() == "read_committed"
        self._isolation = level.READ_COMMITTED if committed_only else level.READ_UNCOMMITTED

    def topics(self) -> dict[str, int]:
        """Return all topics with their numbers of partitions."""
        found = self._listed()
        return {name: len(topic.partitions) for name, topic in found.items() if not topic.error}

    def topic_ids(self, topics: Collection[str]) -> dict[str, TopicId]:
        """Return what tells topics from others of their names, as far as brokers tell it."""
        if not topics:
            return {}
        cluster = self._metadata().cluster_id or ""
        asked = self._kafka.TopicCollection(sorted(topics))
        answers = self._admin.describe_topics(asked, request_timeout=self._seconds)
        found: dict[str, TopicId] = {}
        for topic, answer in answers.items():
            try:
                told = answer.result().topic_id
            except self._kafka.KafkaException as error:
                if error.args[0].code() not in (*self._not_there, *self._not_told):
                    raise
                continue
            if told is not None and str(told) != _NO_TOPIC_ID:
                found[topic] = TopicId(cluster, str(told))
        return found

    def earliest(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the first offsets there are."""
        return self._list(partitions, self._kafka.admin.OffsetSpec.earliest())

    def latest(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the ends: with read_committed, those before the first open transaction."""
        return self._list(partitions, self._kafka.admin.OffsetSpec.latest())

    def firsts_told(self, partitions: Collection[KafkaTopicPartition]) -> Told:
        """Return the first offsets, as far as they are known; raises if none is."""
        return self._ask(partitions, self._kafka.admin.OffsetSpec.earliest())

    def ends_told(self, partitions: Collection[KafkaTopicPartition]) -> Told:
        """Return the ends as :meth:`latest` does, as far as they are known; raises if none is."""
        return self._ask(partitions, self._kafka.admin.OffsetSpec.latest())

    def at_time(self, partitions: Collection[KafkaTopicPartition], timestamp: int) -> Offsets:
        """Return the first offsets not older than a time, of those that have any."""
        spec = self._kafka.admin.OffsetSpec.for_timestamp(timestamp)
        return {p: offset for p, offset in self._list(partitions, spec).items() if offset >= 0}

    def committed(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the offsets committed by the group, of those that have any."""
        asked = [self._kafka.TopicPartition(p.topic, p.partition) for p in partitions]
        answers = self._consumer().committed(asked, timeout=self._seconds)
        for answer in answers:
            if answer.error is not None:
                raise self._kafka.KafkaException(answer.error)
        return {
            KafkaTopicPartition(answer.topic, answer.partition): answer.offset
            for answer in answers
            if answer.offset >= 0
        }

    def commit(self, offsets: Offsets, done: Callable[[str | None], None]) -> None:
        """Begin to commit offsets of the group; :meth:`poll` calls ``done``, with an error if any.

        Without a subscription, and so without taking part in the group.
        """
        wanted = [self._kafka.TopicPartition(p.topic, p.partition, o) for p, o in offsets.items()]
        consumer = self._consumer()
        self._done = done
        consumer.commit(offsets=wanted, asynchronous=True)

    def poll(self, seconds: float = 0.0) -> None:
        """Let answers to commits come in."""
        if self._group_consumer is not None:
            self._group_consumer.poll(seconds)

    def close(self) -> None:
        """Hang up; what waits for a broker that is silent is left to end by itself."""
        if (closing := self._close_group_consumer()) is not None:
            closing.join(_CLOSE_SECONDS)

    def _close_group_consumer(self) -> threading.Thread | None:
        consumer, self._group_consumer = self._group_consumer, None
        if consumer is None:
            return None
        # With a commit under way it waits most of a minute, and a job's end with it.
        closing = threading.Thread(target=consumer.close, name="kafka-close", daemon=True)
        closing.start()
        return closing

    def _listed(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._metadata().topics
        return found

    def _metadata(self) -> Any:
        try:
            return self._admin.list_topics(timeout=self._seconds)
        except self._kafka.KafkaException as error:
            self._renew(str(error))
            raise

    def _renew(self, trouble: str) -> None:
        """Take new clients; a commit that is under way has failed with the old one."""
        self._admin = new_admin(self._properties)
        self._close_group_consumer()
        done, self._done = self._done, _ignore
        done(trouble)

    def _list(self, partitions: Collection[KafkaTopicPartition], spec: Any) -> Offsets:
        return {
            partition: self._known(answer.result().offset)
            for partition, answer in self._answers(partitions, spec).items()
        }

    def _ask(self, partitions: Collection[KafkaTopicPartition], spec: Any) -> Told:
        offsets: Offsets = {}
        gone: set[KafkaTopicPartition] = set()
        trouble: Exception | None = None
        for partition, answer in self._answers(partitions, spec).items():
            try:
                offsets[partition] = self._known(answer.result().offset)
            except self._kafka.KafkaException as error:
                if error.args[0].code() in self._not_there:
                    gone.add(partition)
                else:
                    trouble = error
        if trouble is not None and not offsets:
            # Asked for nothing but deleted partitions, the client only says that nobody leads.
            gone |= self._not_listed(partitions)
            if gone < set(partitions):
                raise trouble
        return Told(offsets, frozenset(gone))

    def _not_listed(self, partitions: Collection[KafkaTopicPartition]) -> set[KafkaTopicPartition]:
        listed = self._listed()
        return {
            p
            for p in partitions
            if p.topic not in listed
            or not (listed[p.topic].error or p.partition in listed[p.topic].partitions)
        }

    def _answers(
        self, partitions: Collection[KafkaTopicPartition], spec: Any
    ) -> dict[KafkaTopicPartition, Any]:
        if not partitions:
            return {}
        asked = {self._kafka.TopicPartition(p.topic, p.partition): spec for p in partitions}
        answers = self._admin.list_offsets(
            asked, isolation_level=self._isolation, request_timeout=self._seconds
        )
        return {KafkaTopicPartition(p.topic, p.partition): a for p, a in answers.items()}

    def _known(self, offset: int) -> int:
        # An answer that was cut off by the broker's death holds no offset, and no error either.
        if offset == self._kafka.OFFSET_INVALID:
            reason = "a partition's offset was not told"
            raise self._kafka.KafkaException(self._kafka.KafkaError(_NO_LEADER, reason))
        return offset

    def _consumer(self) -> Any:
        if self._group_consumer is None:
            self._group_consumer = new_consumer(self._properties, on_commit=self._on_commit)
        return self._group_consumer

    def _on_commit(self, error: Any, partitions: list[Any]) -> None:
        errors = [error, *(p.error for p in partitions)]
        first = next((e for e in errors if e is not None), None)
        done, self._done = self._done, _ignore
        done(None if first is None else first.str())


def _ignore(error: str | None) -> None:
    """Nobody waits for an answer."""
