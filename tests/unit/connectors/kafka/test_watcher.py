"""What the watcher makes of partitions that a broker has no answer for.

A broker that leads only some of its partitions cannot be had from one process, so its answers
are made up.
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

from penstock.connectors.kafka.broker import Broker, Told, TopicId
from penstock.connectors.kafka.client import KafkaProperties, confluent
from penstock.connectors.kafka.offsets import Offsets
from penstock.connectors.kafka.partitions import KafkaTopicPartition, Subscription
from penstock.connectors.kafka.watcher import BrokerView, FoundPartitions, Watcher

ONE, TWO, THREE = (KafkaTopicPartition("orders", number) for number in range(3))
IDS = {"orders": TopicId("cluster", "id of orders")}
KAFKA = confluent()
NO_LEADER = KAFKA.KafkaError(KAFKA.KafkaError.LEADER_NOT_AVAILABLE)
NO_PARTITION = KAFKA.KafkaError(KAFKA.KafkaError.UNKNOWN_TOPIC_OR_PART)


class HalfABroker(Broker):
    """Answers by a table of offsets, or of errors."""

    def __init__(self, table: dict[KafkaTopicPartition, int | Any]) -> None:
        super().__init__(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}))
        self.table = table
        self.asked_for_topics = 0
        self._admin = SimpleNamespace(
            list_offsets=self._list_offsets, list_topics=self._list_topics
        )

    def topic_ids(self, topics: Collection[str]) -> dict[str, TopicId]:
        return {topic: TopicId("cluster", f"id of {topic}") for topic in topics}

    def topics(self) -> dict[str, int]:
        self.asked_for_topics += 1
        return {"orders": len(self.table)}

    def _list_topics(self, timeout: float) -> SimpleNamespace:
        there = {p.partition: None for p, told in self.table.items() if told is not NO_PARTITION}
        return SimpleNamespace(topics={"orders": SimpleNamespace(error=None, partitions=there)})

    def _list_offsets(self, asked: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {}
        for place in asked:
            answers[place] = Future()
            told = self.table[KafkaTopicPartition(place.topic, place.partition)]
            if isinstance(told, int):
                answers[place].set_result(SimpleNamespace(offset=told))
            else:
                answers[place].set_exception(KAFKA.KafkaException(told))
        return answers


def watching(broker: Broker, known: Collection[KafkaTopicPartition], discovery: float) -> Watcher:
    ends: Offsets = dict.fromkeys(known, 0)
    subscription = Subscription(topics=("orders",))
    view = BrokerView(dict(ends), ends)
    watcher = Watcher(broker, subscription, None, view, discovery, threading.Event().set)
    watcher.start()
    return watcher


def until(happens: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not happens():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_a_partition_without_leader_keeps_its_end_and_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = HalfABroker({ONE: 5, TWO: NO_LEADER})
    watcher = watching(broker, [ONE, TWO], discovery=0.0)
    until(lambda: watcher.view.end == {ONE: 5, TWO: 0})
    until(lambda: broker.asked_for_topics)
    broker.table[TWO] = 9
    until(lambda: watcher.view.end == {ONE: 5, TWO: 9})
    watcher.stop()
    assert watcher.error is None
    assert "waiting for Kafka to answer for partition 1 of topic 'orders'" in caplog.text


def test_a_new_partition_without_leader_is_taken_in_later_and_others_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "penstock")
    broker = HalfABroker({ONE: 5, TWO: NO_LEADER, THREE: 2})
    watcher = watching(broker, [ONE], discovery=0.1)
    until(lambda: watcher.view.end == {ONE: 5, THREE: 2})
    assert watcher.take_news() == [FoundPartitions({THREE: 2}, {}, IDS)]
    broker.table[TWO] = 1
    until(lambda: watcher.view.end == {ONE: 5, TWO: 1, THREE: 2})
    watcher.stop()
    assert watcher.take_news() == [FoundPartitions({TWO: 1}, {}, IDS)]


def test_partitions_that_do_not_exist_are_told_from_those_without_answer() -> None:
    broker = HalfABroker({ONE: 5, TWO: NO_PARTITION, THREE: NO_LEADER})
    assert broker.ends_told([ONE, TWO, THREE]) == Told({ONE: 5}, frozenset({TWO}))
    assert broker.ends_told([TWO]) == Told({}, frozenset({TWO}))
    with pytest.raises(KAFKA.KafkaException):
        broker.ends_told([TWO, THREE])
