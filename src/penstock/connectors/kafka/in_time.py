"""Calls of the Kafka client that do not end when they promised to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.connectors.kafka.client import confluent

__all__ = ["in_time"]

_MOST_CALLS = 8
_free = threading.BoundedSemaphore(_MOST_CALLS)


def in_time(seconds: float, what: str, call: Callable[[], object]) -> None:
    """Make a call in a thread of its own, and raise a timeout if it has not returned by then.

    librdkafka never looks at the timeout of a request to a group's coordinator that is away
    (confluentinc/librdkafka#5456). A call that is given up stays in its thread, with the client it
    belongs to, which nobody may use again, until the coordinator is back. While there are too many
    of these, further calls wait for one to return instead of being made, and time out too.
    """
    deadline = time.monotonic() + seconds
    if not _free.acquire(timeout=seconds):
        reason = (
            f"{what} was not called within {seconds:g} s, since {_MOST_CALLS} calls given up "
            "before have not returned; if that lasts with all brokers there, restart the driver"
        )
        raise _timeout(reason)
    raised: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)
        finally:
            _free.release()
            done.set()

    try:
        threading.Thread(target=run, name=f"kafka-{what}", daemon=True).start()
    except BaseException:
        _free.release()
        raise
    if not done.wait(max(0.0, deadline - time.monotonic())):
        reason = f"{what} did not return within {seconds:g} s"
        raise _timeout(reason)
    if raised:
        raise raised[0]


def _timeout(reason: str) -> Exception:
    kafka = confluent()
    error: Exception = kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT, reason))
    return error
