"""The partition monitor with partitions that a broker does not answer for.

A single process cannot run a broker that leads only some of its partitions, so its responses are
faked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors.kafka.client import KafkaProperties, confluent
from penstock.connectors.kafka.partitions import KafkaTopicPartition, Subscription
from penstock.connectors.kafka.source.broker_client import BrokerClient, KnownOffsets, TopicId
from penstock.connectors.kafka.source.offsets_initializer import Offsets
from penstock.connectors.kafka.source.partition_monitor import (
    AvailableOffsets,
    DiscoveredPartitions,
    PartitionMonitor,
)
from penstock.errors import FencedError

FENCED = FencedError("job", "a1", "a2")
ONE, TWO, THREE = (KafkaTopicPartition("orders", number) for number in range(3))
IDS = {"orders": TopicId("cluster", "id of orders")}
KAFKA = confluent()
NO_LEADER = KAFKA.KafkaError(KAFKA.KafkaError.LEADER_NOT_AVAILABLE)
NO_PARTITION = KAFKA.KafkaError(KAFKA.KafkaError.UNKNOWN_TOPIC_OR_PART)


class PartialBroker(BrokerClient):
    """Answers by a table of offsets, or of errors."""

    def __init__(self, table: dict[KafkaTopicPartition, int | Any]) -> None:
        super().__init__(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}))
        self.table = table
        self.metadata_requests = 0
        self._admin = SimpleNamespace(
            list_offsets=self._list_offsets, list_topics=self._list_topics
        )

    def topic_ids(self, topics: Collection[str]) -> dict[str, TopicId]:
        return {topic: TopicId("cluster", f"id of {topic}") for topic in topics}

    def topics(self) -> dict[str, int]:
        self.metadata_requests += 1
        return {"orders": len(self.table)}

    def _list_topics(self, timeout: float) -> SimpleNamespace:
        there = {
            p.partition: None for p, answer in self.table.items() if answer is not NO_PARTITION
        }
        return SimpleNamespace(topics={"orders": SimpleNamespace(error=None, partitions=there)})

    def _list_offsets(self, requested: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {}
        for place in requested:
            answers[place] = Future()
            answer = self.table[KafkaTopicPartition(place.topic, place.partition)]
            if isinstance(answer, int):
                answers[place].set_result(SimpleNamespace(offset=answer))
            else:
                answers[place].set_exception(KAFKA.KafkaException(answer))
        return answers


def monitoring(
    broker: BrokerClient,
    known: Collection[KafkaTopicPartition],
    discovery: float,
    check_owner: Callable[[], None] = lambda: None,
) -> PartitionMonitor:
    ends: Offsets = dict.fromkeys(known, 0)
    subscription = Subscription(topics=("orders",))
    available = AvailableOffsets(dict(ends), ends)
    monitor = PartitionMonitor(
        broker, subscription, None, available, discovery, threading.Event().set, check_owner
    )
    monitor.start()
    return monitor


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.01)


def test_a_partition_without_leader_keeps_its_end_offset_and_delays_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = PartialBroker({ONE: 5, TWO: NO_LEADER})
    monitor = monitoring(broker, [ONE, TWO], discovery=0.0)
    until(lambda: monitor.available.latest == {ONE: 5, TWO: 0})
    until(lambda: broker.metadata_requests)
    broker.table[TWO] = 9
    until(lambda: monitor.available.latest == {ONE: 5, TWO: 9})
    monitor.stop()
    assert monitor.error is None
    assert "Kafka has no reachable leader for partition 1 of topic 'orders'" in caplog.text


def test_a_new_partition_without_leader_is_added_later_and_the_others_immediately(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "penstock")
    broker = PartialBroker({ONE: 5, TWO: NO_LEADER, THREE: 2})
    monitor = monitoring(broker, [ONE], discovery=0.1)
    until(lambda: monitor.available.latest == {ONE: 5, THREE: 2})
    assert monitor.take_partition_changes() == [DiscoveredPartitions({THREE: 2}, {}, IDS)]
    broker.table[TWO] = 1
    until(lambda: monitor.available.latest == {ONE: 5, TWO: 1, THREE: 2})
    monitor.stop()
    assert monitor.take_partition_changes() == [DiscoveredPartitions({TWO: 1}, {}, IDS)]


def test_a_driver_that_was_replaced_commits_no_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    owned, commits = [True], []

    def check_owner() -> None:
        if not owned[0]:
            raise FENCED

    broker = PartialBroker({ONE: 5})
    monkeypatch.setattr(broker, "commit", lambda offsets, _: commits.append(offsets))
    monkeypatch.setattr(broker, "poll", lambda *_: None)
    monitor = monitoring(broker, [ONE], 0.0, check_owner)
    until(lambda: monitor.available.latest == {ONE: 5})
    owned[0] = False
    monitor.commit({ONE: 3})
    until(lambda: monitor.error is not None)
    monitor.stop()
    assert isinstance(monitor.error, FencedError)
    assert commits == []


def test_missing_partitions_are_distinguished_from_unreachable_ones() -> None:
    broker = PartialBroker({ONE: 5, TWO: NO_PARTITION, THREE: NO_LEADER})
    assert broker.known_latest([ONE, TWO, THREE]) == KnownOffsets({ONE: 5}, frozenset({TWO}))
    assert broker.known_latest([TWO]) == KnownOffsets({}, frozenset({TWO}))
    with pytest.raises(KAFKA.KafkaException):
        broker.known_latest([TWO, THREE])
