"""Calls of the Kafka client that do not end when they promised to."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.connectors.kafka.client import confluent

__all__ = ["in_time"]


def in_time(seconds: float, what: str, call: Callable[[], object]) -> None:
    """Make a call in a thread of its own, and raise a timeout if it has not returned by then.

    librdkafka never looks at the timeout of a request to a group's coordinator that is away
    (confluentinc/librdkafka#5456). A call that is given up stays in its thread, with the client it
    belongs to, which nobody may use again.
    """
    raised: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name=f"kafka-{what}", daemon=True).start()
    if not done.wait(seconds):
        kafka = confluent()
        reason = f"{what} did not return within {seconds:g} s"
        raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT, reason))
    if raised:
        raise raised[0]
