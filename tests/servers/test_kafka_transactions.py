"""A producer that has lost its broker does not keep the next commit waiting."""

from __future__ import annotations

import time
import uuid

import pytest

from penstock.connectors.kafka.client import KafkaProperties
from penstock.connectors.kafka.sink.commit_marker import CommitMarker
from penstock.connectors.kafka.sink.committable import TransactionalIdentity
from penstock.connectors.kafka.sink.transactions import TransactionalProducer
from penstock.testing.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.kafka


def test_a_broker_killed_between_two_commits_does_not_delay_the_second_until_a_timeout(
    kafka: KafkaBroker,
) -> None:
    topic = kafka.create_topic(f"killed-{uuid.uuid4().hex[:8]}")
    patient = {"bootstrap.servers": kafka.bootstrap, "max.block.ms": "100000"}
    properties = KafkaProperties(patient)
    transactions = TransactionalProducer(properties, TransactionalIdentity(topic, topic, topic))
    transactions.open()
    transactions.publish([(topic, [{"value": b"first"}])], CommitMarker(1))
    kafka.kill()
    kafka.start()
    began = time.monotonic()
    transactions.open()
    transactions.publish([(topic, [{"value": b"second"}])], CommitMarker(2))
    assert time.monotonic() - began < 60
    assert transactions.marker == CommitMarker(2)
    transactions.close()
