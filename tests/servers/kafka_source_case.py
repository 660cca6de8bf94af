"""A KafkaSource that is opened without a job, and topics for it."""

from __future__ import annotations

import itertools
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.contracts.source import EnumeratorContext, ReadPlan, SplitRange
from penstock.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaSourceBuilder,
)
from penstock.testing.servers.kafka_broker import KafkaBroker

EARLIEST, LATEST = KafkaOffsetsInitializer.earliest(), KafkaOffsetsInitializer.latest()
Records = dict[str, list[str]]


def new_topic(kafka: KafkaBroker, partitions: int = 2) -> str:
    return kafka.create_topic(f"source-{uuid.uuid4().hex[:8]}", partitions)


def producer(kafka: KafkaBroker, **settings: Any) -> Producer:
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer(
        {"bootstrap.servers": kafka.bootstrap, "log_level": 0, "linger.ms": 1, **dotted}
    )


def produce(kafka: KafkaBroker, topic: str, counts: dict[int, int], first: int = 0) -> Records:
    """Write numbered strings to partitions, and return them."""
    client = producer(kafka)
    written: Records = {}
    for partition, count in counts.items():
        values = [f"{partition}/{number}" for number in range(first, first + count)]
        for value in values:
            client.produce(topic, value.encode(), partition=partition)
        written[f"{topic}-{partition}"] = values
    client.flush()
    return written


def builder(kafka: KafkaBroker, *topics: str) -> KafkaSourceBuilder:
    described = (
        KafkaSource.builder()
        .set_bootstrap_servers(kafka.bootstrap)
        .set_value_only_deserializer(SimpleStringSchema())
    )
    return described.set_topics(*topics) if topics else described


class Opened:
    """An enumerator, and what it called for."""

    def __init__(
        self,
        source: KafkaSource,
        positions: dict[str, int] | None = None,
        memory: bytes = b"",
        parallelism: int = 2,
        work_dir: Path = Path("/nowhere"),
        lineage: str = "",
    ) -> None:
        self.wakes = 0
        self.source = source
        context = EnumeratorContext(parallelism, work_dir, time.time, self._wake, lineage=lineage)
        self.enumerator = source.enumerator(context)
        if memory:
            self.enumerator.restore_state(memory)
        self.enumerator.start(positions or {})

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.enumerator.close()

    def _wake(self) -> None:
        self.wakes += 1

    def read(self, plan: ReadPlan) -> Records:
        return read(self.source, list(itertools.chain.from_iterable(plan)))

    def all_there_is(self, most: int = 1000) -> Records:
        """Plan and read until there is nothing more for now."""
        found: Records = defaultdict(list)
        while plan := self.enumerator.plan(most):
            for split, records in self.read(plan).items():
                found[split] += records
        return dict(found)

    def until(self, happens: Callable[[], object], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not happens():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.02)

    def next_plan(self) -> ReadPlan:
        plan: ReadPlan = []

        def planned() -> ReadPlan:
            nonlocal plan
            plan = self.enumerator.plan(1000)
            return plan

        self.until(planned)
        return plan


def read(source: KafkaSource, ranges: list[SplitRange]) -> Records:
    found: Records = defaultdict(list)
    for part in ranges:
        found[part.split] += itertools.chain.from_iterable(source.read_lists(part))
    return dict(found)


def commit(kafka: KafkaBroker, group: str, topic: str, offsets: dict[int, int]) -> None:
    client = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    wanted = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    client.commit(offsets=wanted, asynchronous=False)
    client.close()


def committed(kafka: KafkaBroker, group: str, topic: str, count: int) -> list[int]:
    client = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    answers = client.committed([TopicPartition(topic, n) for n in range(count)], timeout=60)
    client.close()
    return [answer.offset for answer in answers]


def add_partition(kafka: KafkaBroker, topic: str, count: int) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    client.create_partitions([NewPartitions(topic, count)])[topic].result(60)
    while len(client.list_topics(topic, timeout=60).topics[topic].partitions) < count:
        time.sleep(0.05)


def delete_before(kafka: KafkaBroker, topic: str, offset: int) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    place = TopicPartition(topic, 0, offset)
    next(iter(client.delete_records([place]).values())).result(60)


def delete_topic(kafka: KafkaBroker, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    client.delete_topics([topic])[topic].result(60)
