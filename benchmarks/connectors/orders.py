"""The same orders for every engine: lines of text in a topic, made once for all runs.

A line is customer, number and cents; customers are drawn uniformly. Each partition gets the same
number of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

PARTITIONS = 4
AT_ONCE = 10_000
SILENT = {"log_level": 0}


@dataclass(frozen=True)
class Orders:
    """A number of orders, always the same ones."""

    count: int
    keys: int
    seed: int = 7

    def lines(self) -> Iterator[list[str]]:
        """All lines, some at a time."""
        numbers = np.random.default_rng([self.seed, self.keys])
        for start in range(0, self.count, AT_ONCE):
            size = min(AT_ONCE, self.count - start)
            drawn = numbers.integers(0, self.keys, size).tolist()
            yield [
                f"k{key:07d},{number},{number * 31 % 9000 + 100}"
                for number, key in enumerate(drawn, start)
            ]

    def customers(self) -> Counter[str]:
        """How many orders each customer has, without any engine."""
        return Counter(customer_of(line) for lines in self.lines() for line in lines)

    def send(self, bootstrap: str, topic: str) -> None:
        """Create the topic and fill it; return when the broker has everything."""
        create_topic(bootstrap, topic)
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 20,
                "queue.buffering.max.messages": 20 * AT_ONCE,
                **SILENT,
            }
        )
        for lines in self.lines():
            while len(producer) > 10 * AT_ONCE:
                producer.poll(0.01)
            for partition in range(PARTITIONS):
                mine = [{"value": line} for line in lines[partition::PARTITIONS]]
                producer.produce_batch(topic, mine, partition=partition)
        if producer.flush(60):
            msg = f"{len(producer)} orders did not reach the broker"
            raise RuntimeError(msg)


def customer_of(line: str) -> str:
    return line[: line.index(",")]


def row_of(line: str) -> tuple[str, int, int]:
    customer, number, cents = line.split(",")
    return customer, int(number), int(cents)


def create_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **SILENT})
    made = admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])
    made[topic].result(30)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Free disk space for the next run."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **SILENT})
    admin.delete_topics([topic])[topic].result(30)


def read_topic(bootstrap: str, topic: str) -> Iterator[Sequence[tuple[bytes, bytes]]]:
    """Read keys and values of what is committed, up to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"check-{topic}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **SILENT,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    ended = 0
    try:
        while ended < PARTITIONS:
            messages = consumer.consume(AT_ONCE, timeout=1.0)
            errors = [error for message in messages if (error := message.error()) is not None]
            ended += sum(error.code() == KafkaError._PARTITION_EOF for error in errors)
            if any(error.code() != KafkaError._PARTITION_EOF for error in errors):
                raise RuntimeError(str(errors))
            yield [
                (one.key() or b"", one.value() or b"") for one in messages if one.error() is None
            ]
    finally:
        consumer.close()
