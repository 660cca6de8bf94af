"""A producer that has lost its broker does not keep the next commit waiting."""

from __future__ import annotations

import time
import uuid

import pytest

from penstock.connectors.kafka.client import KafkaProperties
from penstock.connectors.kafka.marker import Marker
from penstock.connectors.kafka.staged_part import Account
from penstock.connectors.kafka.transactions import MarkedTransactions
from penstock.testing.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.kafka


def test_a_broker_that_was_killed_between_two_commits_costs_the_second_no_timeout(
    kafka: KafkaBroker,
) -> None:
    topic = kafka.create_topic(f"killed-{uuid.uuid4().hex[:8]}")
    patient = {"bootstrap.servers": kafka.bootstrap, "max.block.ms": "100000"}
    properties = KafkaProperties(patient)
    transactions = MarkedTransactions(properties, Account(topic, topic, topic))
    transactions.open()
    transactions.run([(topic, [{"value": b"first"}])], Marker(1))
    kafka.kill()
    kafka.start()
    began = time.monotonic()
    transactions.open()
    transactions.run([(topic, [{"value": b"second"}])], Marker(2))
    assert time.monotonic() - began < 60
    assert transactions.marker == Marker(2)
    transactions.close()
