"""The check of a sink's topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors.kafka.client import confluent
from penstock.connectors.kafka.sink.producer import check_topic
from penstock.errors import KafkaSinkRefusedError, KafkaUnreachableError

ERRORS = confluent().KafkaError
THERE = SimpleNamespace(error=None)


class FakeProducer:
    """A producer whose brokers return these responses, and repeat the last one."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def list_topics(self, topic: str, seconds: float) -> Any:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return SimpleNamespace(topics={topic: answer})


def failing(code: int) -> Any:
    return SimpleNamespace(error=ERRORS(code))


def test_a_topic_that_is_briefly_unknown_is_looked_up_again() -> None:
    check_topic(
        FakeProducer(failing(ERRORS.UNKNOWN_TOPIC_OR_PART), None, THERE), "t", "host:1", 30.0
    )


def test_a_missing_topic_is_rejected() -> None:
    with pytest.raises(KafkaSinkRefusedError, match="create it first"):
        check_topic(FakeProducer(failing(ERRORS.UNKNOWN_TOPIC_OR_PART)), "t", "host:1", 0.1)


def test_a_topic_without_leader_counts_as_unreachable() -> None:
    with pytest.raises(KafkaUnreachableError):
        check_topic(FakeProducer(failing(ERRORS.LEADER_NOT_AVAILABLE)), "t", "host:1", 0.1)
