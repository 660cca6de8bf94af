"""What a sink makes of the answer when it asks for its topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors.kafka.client import confluent
from penstock.connectors.kafka.topic_check import check_topic
from penstock.errors import KafkaSinkRefusedError, KafkaUnreachableError

ERRORS = confluent().KafkaError
THERE = SimpleNamespace(error=None)


class Told:
    """A producer whose brokers give these answers; the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def list_topics(self, topic: str, seconds: float) -> Any:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return SimpleNamespace(topics={topic: answer})


def told(code: int) -> Any:
    return SimpleNamespace(error=ERRORS(code))


def test_a_topic_that_is_not_known_for_a_moment_is_asked_for_again() -> None:
    check_topic(Told(told(ERRORS.UNKNOWN_TOPIC_OR_PART), None, THERE), "t", "host:1", 30.0)


def test_a_topic_that_stays_away_is_refused() -> None:
    with pytest.raises(KafkaSinkRefusedError, match="create it first"):
        check_topic(Told(told(ERRORS.UNKNOWN_TOPIC_OR_PART)), "t", "host:1", 0.1)


def test_a_topic_that_nobody_leads_now_is_an_outage() -> None:
    with pytest.raises(KafkaUnreachableError):
        check_topic(Told(told(ERRORS.LEADER_NOT_AVAILABLE)), "t", "host:1", 0.1)
