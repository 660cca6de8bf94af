"""What a source makes of a broker's answers that are none."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors.kafka.broker import Broker
from penstock.connectors.kafka.client import KafkaProperties, confluent
from penstock.connectors.kafka.partitions import KafkaTopicPartition

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
