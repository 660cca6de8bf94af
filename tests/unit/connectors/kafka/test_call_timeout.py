"""Calls that would never return."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.connectors.kafka.client import call_with_timeout


def test_a_call_that_returns_before_the_timeout_succeeds() -> None:
    made: list[int] = []
    call_with_timeout(5, "appending", lambda: made.append(1))
    assert made == [1]


def test_exceptions_of_a_call_are_raised() -> None:
    def call() -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED))

    with pytest.raises(KafkaException, match="_FENCED"):
        call_with_timeout(5, "committing", call)


def test_a_call_that_hangs_times_out() -> None:
    forever = threading.Event()
    began = time.monotonic()
    with pytest.raises(KafkaException, match=r"hanging did not return within 0\.05 s") as raised:
        call_with_timeout(0.05, "hanging", forever.wait)
    assert time.monotonic() - began < 2
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    forever.set()


def test_the_number_of_hanging_calls_is_limited() -> None:
    back = threading.Event()
    made: list[int] = []

    def hang(number: int) -> None:
        made.append(number)
        back.wait()

    for number in range(8):
        with pytest.raises(KafkaException, match="did not return"):
            call_with_timeout(0.01, "hanging", partial(hang, number))
    for number in range(8, 20):
        with pytest.raises(KafkaException, match=r"was not called .*: 8 earlier calls") as raised:
            call_with_timeout(0.01, "hanging", partial(hang, number))
        assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    assert made == list(range(8))
    assert sum(thread.name == "kafka-hanging" for thread in threading.enumerate()) == 8
    back.set()
    call_with_timeout(5, "going on", lambda: made.append(20))
    assert made[-1] == 20
