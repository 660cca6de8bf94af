"""Partitions of topics: their names as splits, who reads them, and which a source wants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.errors import InvalidJobError

__all__ = ["KafkaTopicPartition", "Subscription", "subtask_of"]

_INTERNAL = "__"


class KafkaTopicPartition:
    """One partition of a topic."""

    __slots__ = ("_partition", "_topic")

    def __init__(self, topic: str, partition: int) -> None:
        if not isinstance(topic, str) or not topic:
            message = f"a topic is a name that is not empty; got {topic!r}"
            raise InvalidJobError(message)
        if not isinstance(partition, int) or partition < 0:
            message = f"a partition is a number from 0; got {partition!r}"
            raise InvalidJobError(message)
        self._topic = topic
        self._partition = partition

    @staticmethod
    def of_split(split: str) -> KafkaTopicPartition:
        """Read what :attr:`split` spelled."""
        topic, _, partition = split.rpartition("-")
        return KafkaTopicPartition(topic, int(partition))

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self._partition

    @property
    def split(self) -> str:
        """The name of this partition in plans and checkpoints.

        A topic may hold dashes and digits too; the partition is what follows the last dash.
        """
        return f"{self._topic}-{self._partition}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KafkaTopicPartition):
            return False
        return self._topic == other._topic and self._partition == other._partition

    def __lt__(self, other: KafkaTopicPartition) -> bool:
        return (self._topic, self._partition) < (other._topic, other._partition)

    def __hash__(self) -> int:
        return hash((self._topic, self._partition))

    def __reduce__(self) -> tuple[type[KafkaTopicPartition], tuple[str, int]]:
        return KafkaTopicPartition, (self._topic, self._partition)

    def __repr__(self) -> str:
        return self.split


def subtask_of(partition: KafkaTopicPartition, parallelism: int) -> int:
    """Tell which subtask reads a partition: always the same one, as in Flink.

    The partitions of a topic go round; where they begin depends on the topic's name.
    """
    first = (_java_hash(partition.topic) * 31 & 0x7FFFFFFF) % parallelism
    return (first + partition.partition) % parallelism


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a source wants to read: topics, topics by a pattern, or single partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[KafkaTopicPartition] = field(default_factory=frozenset)

    def wants(self, partition: KafkaTopicPartition) -> bool:
        """Tell whether a partition belongs to it, there or not.

        Kafka's own topics, such as ``__consumer_offsets``, fit only a pattern that spells ``__``.
        """
        if self.pattern is not None:
            if partition.topic.startswith(_INTERNAL) and _INTERNAL not in self.pattern:
                return False
            return re.fullmatch(self.pattern, partition.topic) is not None
        return partition.topic in self.topics or partition in self.partitions

    def found_in(self, topics: Mapping[str, int]) -> set[KafkaTopicPartition]:
        """Choose among all topics there are, given with their numbers of partitions."""
        there = (
            KafkaTopicPartition(topic, number)
            for topic, count in topics.items()
            for number in range(count)
        )
        return {partition for partition in there if self.wants(partition)}

    def missing_in(self, topics: Mapping[str, int]) -> list[str]:
        """Name what must be there and is not; a pattern needs nothing."""
        single = sorted(p for p in self.partitions if p.partition >= topics.get(p.topic, 0))
        return [f"topic {topic!r}" for topic in self.topics if not topics.get(topic)] + [
            f"partition {p.partition} of topic {p.topic!r}" for p in single
        ]

    def only_topic(self) -> str | None:
        """Tell the topic all records come from; None if there may be several."""
        names = {*self.topics, *(p.topic for p in self.partitions)}
        return names.pop() if self.pattern is None and len(names) == 1 else None

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics like {self.pattern!r}"
        return ", ".join([*self.topics, *_splits(self.partitions)])


def _splits(partitions: Iterable[KafkaTopicPartition]) -> list[str]:
    return [partition.split for partition in sorted(partitions)]


def _java_hash(text: str) -> int:
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value
