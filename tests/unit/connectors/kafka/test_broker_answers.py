"""What sources and sinks make of a broker's answers that are none."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors.kafka.broker import Broker
from penstock.connectors.kafka.client import KafkaProperties, confluent
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.connectors.kafka.staged_part import Account
from penstock.connectors.kafka.transactions import MarkedTransactions

PARTITION = KafkaTopicPartition("orders", 0)


def broker_that_answers(offset: int) -> Broker:
    """A broker cannot be made to die within an answer, so this one is made up."""

    def list_offsets(asked: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(offset=offset))
        return dict.fromkeys(asked, answer)

    broker = Broker(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}))
    broker._admin = SimpleNamespace(list_offsets=list_offsets)
    return broker


def test_an_end_that_was_not_told_is_an_outage_and_no_end() -> None:
    broker = broker_that_answers(confluent().OFFSET_INVALID)
    for ask in (broker.earliest, broker.latest, lambda parts: broker.at_time(parts, 0)):
        with pytest.raises(confluent().KafkaException, match="was not told"):
            ask([PARTITION])


def test_no_record_behind_a_time_is_an_answer() -> None:
    assert broker_that_answers(confluent().OFFSET_END).at_time([PARTITION], 0) == {}
    assert broker_that_answers(7).latest([PARTITION]) == {PARTITION: 7}


def test_a_coordinator_that_is_being_loaded_is_waited_for() -> None:
    kafka = confluent()
    account = Account("id", "group", "orders")
    properties = KafkaProperties({"bootstrap.servers": "127.0.0.1:1"})
    answers = [kafka.KafkaError(kafka.KafkaError.NOT_COORDINATOR), "the marker"]

    def committed(_: Any, __: float) -> list[Any]:
        answer = answers.pop(0)
        if isinstance(answer, kafka.KafkaError):
            raise kafka.KafkaException(answer)
        return [SimpleNamespace(error=None, marker=answer)]

    transactions = MarkedTransactions(properties, account)
    found = transactions._committed(SimpleNamespace(committed=committed))
    assert found.marker == "the marker"
    answers.append(kafka.KafkaError(kafka.KafkaError.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(kafka.KafkaException):
        transactions._committed(SimpleNamespace(committed=committed))
