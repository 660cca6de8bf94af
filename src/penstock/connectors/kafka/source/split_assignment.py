"""Distributes partitions over subtasks, and the records of a micro-batch over partitions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from penstock.connectors.kafka.partitions import KafkaTopicPartition

T = TypeVar("T", bound=Hashable)


def split_owner(partition: KafkaTopicPartition, parallelism: int) -> int:
    """Return the subtask that reads a partition: always the same one, as in Flink.

    The partitions of a topic are assigned round-robin, from a subtask chosen by the topic's name.
    """
    first = (_java_hash(partition.topic) * 31 & 0x7FFFFFFF) % parallelism
    return (first + partition.partition) % parallelism


def fair_shares(backlogs: Mapping[T, int], max_records: int) -> dict[T, int]:
    """Divide ``max_records`` among backlogs by max-min fairness.

    A backlog below an even share is taken whole, and the longer ones divide the rest. Each gets at
    least one record, even if that exceeds ``max_records``: otherwise a short backlog could starve.
    """
    shares: dict[T, int] = {}
    waiting = sorted((k for k, count in backlogs.items() if count > 0), key=lambda k: backlogs[k])
    left = max_records
    for index, key in enumerate(waiting):
        even = max(1, left // (len(waiting) - index))
        shares[key] = min(backlogs[key], even)
        left -= shares[key]
    return shares


def _java_hash(text: str) -> int:
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value
