"""Sends numbered records at a steady rate; measures when each is visible in a topic and a table.

It is a separate process, so that it does not wait for the job that it observes. A record belongs to
one of a few keys by its number; what there is of a key comes in order, so the highest number of
each key is enough.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.connectors.orders import PARTITIONS, SILENT

KEYS = 8
LOOK_EVERY_S = 0.004
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Places:
    """What is written and looked at; the table has the columns key and number."""

    bootstrap: str
    from_topic: str
    to_topic: str
    dsn: str
    table: str


@dataclass
class Sightings:
    """When each record was sent and seen, in seconds since the epoch, by its number."""

    sent: list[float]
    in_topic: list[float]
    in_table: list[float]


class Observer:
    """Starts sending at once; `result` waits until everything was seen.

    The first record of each key goes ahead, and the others wait until those were seen: a job takes
    its time to come up.
    """

    def __init__(self, places: Places, rate: float, records: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_observe, args=(places, rate, records, theirs), daemon=True
        )
        self._process.start()
        theirs.close()

    def result(self) -> Sightings:
        try:
            found: Sightings = self._ours.recv()
        except EOFError:
            msg = "not every record came through"
            raise RuntimeError(msg) from None
        self._process.join()
        return found


def _observe(places: Places, rate: float, records: int, answer: Connection) -> None:
    found = Sightings([0.0] * records, [0.0] * records, [0.0] * records)
    looks = [
        threading.Thread(target=_watch_topic, args=(places, found.in_topic), daemon=True),
        threading.Thread(target=_watch_table, args=(places, found.in_table), daemon=True),
    ]
    for look in looks:
        look.start()
    _send(places, rate, found)
    for look in looks:
        look.join(PATIENCE_S)
    if all(found.in_topic) and all(found.in_table):
        answer.send(found)
    answer.close()


def _send(places: Places, rate: float, found: Sightings) -> None:
    producer = Producer({"bootstrap.servers": places.bootstrap, "linger.ms": 0, **SILENT})

    def send(number: int) -> None:
        found.sent[number] = time.time()
        producer.produce(places.from_topic, str(number), partition=number % PARTITIONS)
        producer.poll(0)

    for number in range(KEYS):
        send(number)
    producer.flush()
    patience = time.monotonic() + PATIENCE_S
    while not all(found.in_topic[:KEYS] + found.in_table[:KEYS]) and time.monotonic() < patience:
        time.sleep(0.01)
    began = time.time()
    for number in range(KEYS, len(found.sent)):
        time.sleep(max(0.0, began + (number - KEYS) / rate - time.time()))
        send(number)
    producer.flush()


def _watch_topic(places: Places, seen: list[float]) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": places.bootstrap,
        "group.id": "observer",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        **SILENT,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(places.to_topic, part, 0) for part in range(PARTITIONS)])
    left = len(seen)
    while left:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            seen[int(message.value() or b"")] = time.time()
            left -= 1
    consumer.close()


def _watch_table(places: Places, seen: list[float]) -> None:
    look = (
        f"SELECT key, (SELECT max(number) FROM {places.table} WHERE key = keys.key) "
        f"FROM generate_series(0, {KEYS - 1}) AS keys (key)"
    )
    highest = [key - KEYS for key in range(KEYS)]
    left = len(seen)
    with psycopg.connect(places.dsn, autocommit=True) as connection:
        while left:
            found = connection.execute(look, prepare=True).fetchall()
            now = time.time()
            for key, number in found:
                if number is not None:
                    new = range(highest[key] + KEYS, number + 1, KEYS)
                    for one in new:
                        seen[one] = now
                    left -= len(new)
                    highest[key] = number
            time.sleep(LOOK_EVERY_S)
