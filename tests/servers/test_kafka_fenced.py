"""A broker that runs and responds while its controller has fenced it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from penstock.connectors.kafka.client import KafkaProperties
from penstock.connectors.kafka.source.broker_client import BrokerClient
from penstock.testing.servers.kafka_broker import KafkaBroker
from tests.conftest import made_or_skipped

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def fenced_often() -> Iterator[KafkaBroker]:
    """Its session is over before each heartbeat: a second of three it is fenced."""
    session = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "3000"}
    with made_or_skipped(lambda: KafkaBroker(properties=session)) as broker:
        # Clients only believe an empty broker list if there are topics.
        broker.create_topic("any")
        yield broker


def until(happens: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_fenced(broker: KafkaBroker) -> bool:
    # A new client each time; the second test is about old ones.
    admin = AdminClient({"bootstrap.servers": broker.direct, "log_level": 0})
    return not admin.list_topics(timeout=30).brokers


def test_a_topic_is_waited_for_while_the_broker_is_fenced(fenced_often: KafkaBroker) -> None:
    until(lambda: is_fenced(fenced_often))
    assert fenced_often.create_topic("waited-for") == "waited-for"


def test_a_client_with_empty_metadata_recovers(fenced_often: KafkaBroker) -> None:
    properties = KafkaProperties({"bootstrap.servers": fenced_often.bootstrap})
    # After that, about every fifth client no longer knows any broker.
    brokers = [BrokerClient(properties, 1.0) for _ in range(20)]

    def answered(broker: BrokerClient) -> bool:
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
