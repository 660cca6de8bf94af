"""Partitions of topics, and the subscription that selects those a source reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import InvalidJobError

_INTERNAL = "__"


@dataclass(frozen=True, slots=True, order=True, repr=False)
class KafkaTopicPartition:
    """One partition of a topic."""

    topic: str
    partition: int

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not self.topic:
            message = f"a topic must be a non-empty string; got {self.topic!r}"
            raise InvalidJobError(message)
        if not isinstance(self.partition, int) or self.partition < 0:
            message = f"a partition must be a number, 0 or more; got {self.partition!r}"
            raise InvalidJobError(message)

    @staticmethod
    def of_split(split: str) -> KafkaTopicPartition:
        """Parse the name that :attr:`split` returns."""
        topic, _, partition = split.rpartition("-")
        return KafkaTopicPartition(topic, int(partition))

    @property
    def split(self) -> str:
        """The name of this partition in plans and checkpoints.

        A topic may contain dashes too; the partition follows the last one.
        """
        return f"{self.topic}-{self.partition}"

    def __repr__(self) -> str:
        return self.split


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics, topic pattern or partitions that a source reads."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[KafkaTopicPartition] = field(default_factory=frozenset)

    def wants(self, partition: KafkaTopicPartition) -> bool:
        """Return whether a partition, existing or not, is subscribed.

        Internal topics, such as ``__consumer_offsets``, need a pattern that contains ``__``.
        """
        if self.pattern is not None:
            if partition.topic.startswith(_INTERNAL) and _INTERNAL not in self.pattern:
                return False
            return re.fullmatch(self.pattern, partition.topic) is not None
        return partition.topic in self.topics or partition in self.partitions

    def found_in(self, topics: Mapping[str, int]) -> set[KafkaTopicPartition]:
        """Return the subscribed partitions, from all topics with their partition counts."""
        existing = (
            KafkaTopicPartition(topic, number)
            for topic, count in topics.items()
            for number in range(count)
        )
        return {partition for partition in existing if self.wants(partition)}

    def missing_in(self, topics: Mapping[str, int]) -> list[str]:
        """Return the named topics and partitions that do not exist."""
        single = sorted(p for p in self.partitions if p.partition >= topics.get(p.topic, 0))
        return [f"topic {topic!r}" for topic in self.topics if not topics.get(topic)] + [
            f"partition {p.partition} of topic {p.topic!r}" for p in single
        ]

    def only_topic(self) -> str | None:
        """Return the topic of all records; None if there may be several."""
        names = {*self.topics, *(p.topic for p in self.partitions)}
        return names.pop() if self.pattern is None and len(names) == 1 else None

    def __str__(self) -> str:
        # Hashed into the name of the file with the initial offsets: do not change the text.
        if self.pattern is not None:
            return f"topics like {self.pattern!r}"
        return ", ".join([*self.topics, *(p.split for p in sorted(self.partitions))])
