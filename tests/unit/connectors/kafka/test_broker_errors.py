"""Responses of a broker that contain no result."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors.kafka.client import KafkaProperties, confluent
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.connectors.kafka.sink.committable import TransactionalIdentity
from penstock.connectors.kafka.sink.transactions import TransactionalProducer
from penstock.connectors.kafka.source.broker_client import BrokerClient

PARTITION = KafkaTopicPartition("orders", 0)


def broker_that_answers(offset: int) -> BrokerClient:
    """Return a fake: a real broker cannot be killed in the middle of a response."""

    def list_offsets(requested: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(offset=offset))
        return dict.fromkeys(requested, answer)

    broker = BrokerClient(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}))
    broker._admin = SimpleNamespace(list_offsets=list_offsets)
    return broker


def test_a_response_without_an_offset_counts_as_unreachable() -> None:
    broker = broker_that_answers(confluent().OFFSET_INVALID)
    for ask in (broker.earliest, broker.latest, lambda parts: broker.at_time(parts, 0)):
        with pytest.raises(confluent().KafkaException, match="has no offset"):
            ask([PARTITION])


def test_no_record_after_a_timestamp_is_a_valid_response() -> None:
    assert broker_that_answers(confluent().OFFSET_END).at_time([PARTITION], 0) == {}
    assert broker_that_answers(7).latest([PARTITION]) == {PARTITION: 7}


def test_a_loading_coordinator_is_waited_for() -> None:
    kafka = confluent()
    identity = TransactionalIdentity("id", "group", "orders")
    properties = KafkaProperties({"bootstrap.servers": "127.0.0.1:1"})
    answers = [kafka.KafkaError(kafka.KafkaError.NOT_COORDINATOR), "the marker"]

    def committed(_: Any, __: float) -> list[Any]:
        answer = answers.pop(0)
        if isinstance(answer, kafka.KafkaError):
            raise kafka.KafkaException(answer)
        return [SimpleNamespace(error=None, marker=answer)]

    producer = TransactionalProducer(properties, identity)
    found = producer._committed_offset(SimpleNamespace(committed=committed))
    assert found.marker == "the marker"
    answers.append(kafka.KafkaError(kafka.KafkaError.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(kafka.KafkaException):
        producer._committed_offset(SimpleNamespace(committed=committed))
