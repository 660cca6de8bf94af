"""A broker that is there and answers, while its controller does not count on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from penstock.connectors.kafka.broker import Broker
from penstock.connectors.kafka.client import KafkaProperties
from penstock.testing.servers.kafka_broker import KafkaBroker
from tests.conftest import made_or_skipped

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def fenced_often() -> Iterator[KafkaBroker]:
    """Its session is over before each heartbeat: a second of three it is fenced."""
    session = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "3000"}
    with made_or_skipped(lambda: KafkaBroker(properties=session)) as broker:
        # Clients believe that there is no broker only where there are topics.
        broker.create_topic("any")
        yield broker


def until(happens: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_fenced(broker: KafkaBroker) -> bool:
    # A new client each time: what an old one says is what the second test is about.
    admin = AdminClient({"bootstrap.servers": broker.direct, "log_level": 0})
    return not admin.list_topics(timeout=30).brokers


def test_a_topic_is_waited_for_while_the_broker_is_fenced(fenced_often: KafkaBroker) -> None:
    until(lambda: is_fenced(fenced_often))
    assert fenced_often.create_topic("waited-for") == "waited-for"


def test_who_was_told_of_no_broker_at_all_finds_it_again(fenced_often: KafkaBroker) -> None:
    properties = KafkaProperties({"bootstrap.servers": fenced_often.bootstrap})
    # About every fifth client does not know whom to call behind that.
    brokers = [Broker(properties, 1.0) for _ in range(20)]

    def answered(broker: Broker) -> bool:
        with suppress(KafkaException):
            return "any" in broker.topics()
        return False

    def all_asked_until(fenced: bool) -> None:
        until(lambda: [answered(one) for one in brokers] and is_fenced(fenced_often) is fenced)

    all_asked_until(fenced=False)
    all_asked_until(fenced=True)
    all_asked_until(fenced=False)
    left = list(brokers)
    until(lambda: not left or (answered(left[-1]) and left.pop() and not left))
