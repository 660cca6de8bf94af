"""Calls that would never return."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.connectors.kafka.in_time import in_time


def test_a_call_that_returns_in_time_is_all_there_is() -> None:
    made: list[int] = []
    in_time(5, "appending", lambda: made.append(1))
    assert made == [1]


def test_what_a_call_raises_is_raised() -> None:
    def call() -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED))

    with pytest.raises(KafkaException, match="_FENCED"):
        in_time(5, "committing", call)


def test_a_call_that_hangs_is_a_timeout_and_holds_nobody_up() -> None:
    forever = threading.Event()
    began = time.monotonic()
    with pytest.raises(KafkaException, match=r"hanging did not return within 0\.05 s") as raised:
        in_time(0.05, "hanging", forever.wait)
    assert time.monotonic() - began < 2
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    forever.set()


def test_calls_that_hang_are_not_joined_by_more_and_more() -> None:
    back = threading.Event()
    made: list[int] = []

    def hang(number: int) -> None:
        made.append(number)
        back.wait()

    for number in range(8):
        with pytest.raises(KafkaException, match="did not return"):
            in_time(0.01, "hanging", partial(hang, number))
    for number in range(8, 20):
        with pytest.raises(KafkaException, match=r"was not called .*, since 8 calls") as raised:
            in_time(0.01, "hanging", partial(hang, number))
        assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    assert made == list(range(8))
    assert sum(thread.name == "kafka-hanging" for thread in threading.enumerate()) == 8
    back.set()
    in_time(5, "going on", lambda: made.append(20))
    assert made[-1] == 20
