"""Who writes the orders: a plain producer that outlives what happens to the broker."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, Message, Producer

from tests.crash.orders.events import Order

CHUNK = 200
SLOWEST_DELIVERY_S = 60.0


class Feed:
    """Writes orders in their order, at a pace, up to as many as were released.

    The producer is idempotent and never gives up a record, so each one gets the place that the
    generator determines, even if the broker is killed.
    """

    def __init__(self, bootstrap: str, topic: str, made: Sequence[Order], pause_s: float) -> None:
        self._topic = topic
        self._made = made
        self._pause_s = pause_s
        self._sent = self._released = 0
        self._failure: str | None = None
        self._news = threading.Condition()
        self._closed = False
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "socket.timeout.ms": 3_000,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
                "delivery.report.only.error": True,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    @property
    def released(self) -> int:
        """How many orders may be written so far."""
        return self._released

    def write(self, number: int) -> None:
        """Write the next orders at once, and wait until the broker has them."""
        assert self._sent == self._released
        for order in self._made[self._sent : self._sent + number]:
            self._produce(order)
        with self._news:
            self._sent = self._released = min(self._sent + number, len(self._made))
        self.flush()

    def release(self, up_to: int) -> None:
        """Let orders be written, in their own time."""
        with self._news:
            self._released = min(max(up_to, self._released), len(self._made))
            self._news.notify()

    def flush(self) -> None:
        """Wait until all that was released is in the broker; raise if it cannot be."""
        end = time.monotonic() + SLOWEST_DELIVERY_S
        while self._sent < self._released and time.monotonic() < end:
            time.sleep(0.05)
        left = self._producer.flush(SLOWEST_DELIVERY_S)
        assert self._failure is None, f"orders cannot be written: {self._failure}"
        assert not left, f"{left} orders are still not written"

    def close(self) -> None:
        """Write no more."""
        with self._news:
            self._closed = True
            self._news.notify()
        self._thread.join()
        self._producer.purge()

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._closed and self._sent >= self._released:
                    self._news.wait()
                if self._closed:
                    return
                start, end = self._sent, min(self._sent + CHUNK, self._released)
            for order in self._made[start:end]:
                self._produce(order)
            with self._news:
                self._sent = end
            time.sleep(self._pause_s)

    def _produce(self, order: Order) -> None:
        value = json.dumps(order._asdict()).encode()
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    order.customer.encode(),
                    order.partition,
                    on_delivery=self._told,
                )
            except BufferError:
                self._producer.poll(0.05)
            else:
                self._producer.poll(0)
                return

    def _told(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failure = str(error)
