"""Initializers that choose the starting and stopping offsets of partitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.errors import MissingOffsetsError

Offsets: TypeAlias = dict[KafkaTopicPartition, int]
Partitions: TypeAlias = Collection[KafkaTopicPartition]

_COMMITTED = -3
"""Stands for the group's committed offset in a map of offsets, as in Flink."""


class KafkaOffsetResetStrategy(Enum):
    """Where to start in a partition that has no offset."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


class PartitionOffsetsRetriever(Protocol):
    """Queries the broker for the offsets of partitions, on behalf of an initializer."""

    group: str | None

    def earliest(self, partitions: Partitions) -> Offsets:
        """Return the first available offsets."""

    def latest(self, partitions: Partitions) -> Offsets:
        """Return the end offsets: after the last record, or before the first open transaction."""

    def committed(self, partitions: Partitions) -> Offsets:
        """Return the offsets the group has committed, for partitions that have one."""

    def at_time(self, partitions: Partitions, timestamp: int) -> Offsets:
        """Return the first offset at or after a timestamp, for partitions that have one."""


class KafkaOffsetsInitializer(ABC):
    """Chooses the offsets of partitions once; from then on checkpoints hold them."""

    @abstractmethod
    def resolve(self, partitions: Partitions, retriever: PartitionOffsetsRetriever) -> Offsets:
        """Return an offset for each partition; called on the driver, outside of `plan`."""

    def reset_out_of_range(self, offsets: Offsets, retriever: PartitionOffsetsRetriever) -> Offsets:
        """Return replacements for starting offsets that are out of range.

        None by default: such an offset is then rejected like any other lost position.
        """
        return {}

    def needs_group(self) -> str | None:
        """Return why a group id is required; None if it is not."""
        return None

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Start at the group's committed offsets, otherwise by the strategy."""
        return _Committed(_strategy(offset_reset_strategy))

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Start at the first record whose timestamp, in milliseconds, is this one or later."""
        message = f"timestamp() takes milliseconds since 1970; got {timestamp!r}"
        require(_is_number(timestamp) and timestamp >= 0, message)
        return _AtTime(timestamp)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Start at the first available offset."""
        return _ByStrategy(KafkaOffsetResetStrategy.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Start at the end offset found when the job first starts."""
        return _ByStrategy(KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Start at these offsets.

        A partition without one starts at the group's committed offset if there is one, otherwise
        by the strategy, which also applies to an offset that is out of range.
        """
        message = f"offsets() takes a dict of offsets by KafkaTopicPartition; got {offsets!r}"
        require(isinstance(offsets, Mapping), message)
        for partition, offset in offsets.items():
            message = (
                f"offsets() takes offsets by KafkaTopicPartition; got {offset!r} for {partition!r}"
            )
            require(isinstance(partition, KafkaTopicPartition) and _is_number(offset), message)
            message = f"offsets() takes no negative offsets; got {offset} for {partition}"
            require(offset >= 0 or offset == _COMMITTED, message)
        return _Given(tuple(offsets.items()), _strategy(offset_reset_strategy))


def _strategy(strategy: KafkaOffsetResetStrategy) -> KafkaOffsetResetStrategy:
    message = f"an offset reset strategy must be a KafkaOffsetResetStrategy; got {strategy!r}"
    require(isinstance(strategy, KafkaOffsetResetStrategy), message)
    return strategy


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# The reprs of the classes below, their names included, are hashed into the name of the file with
# the initial offsets (`KafkaSourceSettings.offsets_request`): do not rename classes or fields.


@dataclass(frozen=True, slots=True)
class _ByStrategy(KafkaOffsetsInitializer):
    strategy: KafkaOffsetResetStrategy

    def resolve(self, partitions: Partitions, retriever: PartitionOffsetsRetriever) -> Offsets:
        if not partitions:
            return {}
        if self.strategy is KafkaOffsetResetStrategy.EARLIEST:
            return retriever.earliest(partitions)
        if self.strategy is KafkaOffsetResetStrategy.LATEST:
            return retriever.latest(partitions)
        raise MissingOffsetsError(retriever.group or "", tuple(p.split for p in sorted(partitions)))


@dataclass(frozen=True, slots=True)
class _Committed(KafkaOffsetsInitializer):
    strategy: KafkaOffsetResetStrategy

    def resolve(self, partitions: Partitions, retriever: PartitionOffsetsRetriever) -> Offsets:
        found = retriever.committed(partitions)
        missing = [p for p in partitions if p not in found]
        return found | _ByStrategy(self.strategy).resolve(missing, retriever)

    def needs_group(self) -> str | None:
        return "Property group.id is required when using committed offset for offsets initializer"


@dataclass(frozen=True, slots=True)
class _AtTime(KafkaOffsetsInitializer):
    moment: int

    def resolve(self, partitions: Partitions, retriever: PartitionOffsetsRetriever) -> Offsets:
        # The end offsets first: a record written in between lies after them and is not missed.
        ends = retriever.latest(partitions)
        return ends | retriever.at_time(partitions, self.moment)


@dataclass(frozen=True, slots=True)
class _Given(KafkaOffsetsInitializer):
    offsets_by_partition: tuple[tuple[KafkaTopicPartition, int], ...]
    strategy: KafkaOffsetResetStrategy

    def resolve(self, partitions: Partitions, retriever: PartitionOffsetsRetriever) -> Offsets:
        explicit = dict(self.offsets_by_partition)
        known = {p: explicit[p] for p in partitions if explicit.get(p, _COMMITTED) >= 0}
        missing = [p for p in partitions if p not in known]
        if retriever.group and missing:
            known |= retriever.committed(missing)
        missing = [p for p in partitions if p not in known]
        return known | _ByStrategy(self.strategy).resolve(missing, retriever)

    def reset_out_of_range(self, offsets: Offsets, retriever: PartitionOffsetsRetriever) -> Offsets:
        explicit = [p for p, offset in self.offsets_by_partition if offsets.get(p) == offset]
        if self.strategy is KafkaOffsetResetStrategy.NONE or not explicit:
            return {}
        first, end = retriever.earliest(explicit), retriever.latest(explicit)
        outside = [p for p in explicit if not first[p] <= offsets[p] <= end[p]]
        return _ByStrategy(self.strategy).resolve(outside, retriever)

    def needs_group(self) -> str | None:
        committed = [p for p, offset in self.offsets_by_partition if offset == _COMMITTED]
        if not committed:
            return None
        return (
            f"Property group.id is required because partition {committed[0]} is initialized "
            "with committed offset"
        )
