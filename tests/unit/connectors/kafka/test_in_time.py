"""Calls that would never return."""

from __future__ import annotations

import threading
import time

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
