"""Where a source begins and ends in each partition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.errors import InvalidJobError, MissingOffsetsError

__all__ = [
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "OffsetLookup",
    "Offsets",
]

Offsets: TypeAlias = dict[KafkaTopicPartition, int]

_COMMITTED = -3
"""Stands for the group's own offset in a map of offsets, as in Flink."""


class KafkaOffsetResetStrategy(Enum):
    """Where to begin if nothing else says so."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


class OffsetLookup(Protocol):
    """What an initializer may ask the broker, about some partitions each."""

    group: str | None

    def earliest(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the first offsets there are."""

    def latest(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the ends: behind the last record, or before the first open transaction."""

    def committed(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        """Return the offsets committed by the group, of those that have any."""

    def at_time(self, partitions: Collection[KafkaTopicPartition], timestamp: int) -> Offsets:
        """Return the first offsets not older than a time, of those that have any."""


class KafkaOffsetsInitializer(ABC):
    """Finds the offsets of partitions once; from then on they are kept in checkpoints."""

    @abstractmethod
    def resolve(self, partitions: Collection[KafkaTopicPartition], lookup: OffsetLookup) -> Offsets:
        """Return an offset for each partition; called on the driver, never in a plan."""

    def moved_inside(self, offsets: Offsets, lookup: OffsetLookup) -> Offsets:
        """Return other places to begin for offsets that Kafka does not have, if there are any.

        Nothing by default: then such an offset is refused as any other lost position.
        """
        return {}

    def needs_group(self) -> str | None:
        """Say why a group id is needed; None if it is not."""
        return None

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Take the offsets the group committed, else those of the strategy."""
        return _Committed(_strategy(offset_reset_strategy))

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Take the first record whose timestamp, in milliseconds, is this one or later."""
        if not _is_number(timestamp) or timestamp < 0:
            message = f"a timestamp is a number of milliseconds since 1970; got {timestamp!r}"
            raise InvalidJobError(message)
        return _AtTime(timestamp)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Take the first offset there is."""
        return _ByStrategy(KafkaOffsetResetStrategy.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Take the end there is when the job starts for the first time."""
        return _ByStrategy(KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Take these offsets.

        A partition without one begins where the group committed, if it did, else by the
        strategy; so does one whose offset lies outside of what Kafka has.
        """
        if not isinstance(offsets, Mapping):
            message = f"offsets() takes a dict of offsets by KafkaTopicPartition; got {offsets!r}"
            raise InvalidJobError(message)
        for partition, offset in offsets.items():
            if not isinstance(partition, KafkaTopicPartition) or not _is_number(offset):
                message = (
                    "offsets() takes offsets by KafkaTopicPartition; "
                    f"got {offset!r} for {partition!r}"
                )
                raise InvalidJobError(message)
            if offset < 0 and offset != _COMMITTED:
                message = f"an offset is not negative; got {offset} for {partition}"
                raise InvalidJobError(message)
        return _Given(tuple(offsets.items()), _strategy(offset_reset_strategy))


def _strategy(strategy: Any) -> KafkaOffsetResetStrategy:
    if not isinstance(strategy, KafkaOffsetResetStrategy):
        message = f"a reset strategy is a KafkaOffsetResetStrategy; got {strategy!r}"
        raise InvalidJobError(message)
    return strategy


def _is_number(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


@dataclass(frozen=True, slots=True)
class _ByStrategy(KafkaOffsetsInitializer):
    strategy: KafkaOffsetResetStrategy

    def resolve(self, partitions: Collection[KafkaTopicPartition], lookup: OffsetLookup) -> Offsets:
        if not partitions:
            return {}
        if self.strategy is KafkaOffsetResetStrategy.EARLIEST:
            return lookup.earliest(partitions)
        if self.strategy is KafkaOffsetResetStrategy.LATEST:
            return lookup.latest(partitions)
        raise MissingOffsetsError(lookup.group or "", tuple(p.split for p in sorted(partitions)))


@dataclass(frozen=True, slots=True)
class _Committed(KafkaOffsetsInitializer):
    strategy: KafkaOffsetResetStrategy

    def resolve(self, partitions: Collection[KafkaTopicPartition], lookup: OffsetLookup) -> Offsets:
        found = lookup.committed(partitions)
        missing = [p for p in partitions if p not in found]
        return found | _ByStrategy(self.strategy).resolve(missing, lookup)

    def needs_group(self) -> str | None:
        return "Property group.id is required when using committed offset for offsets initializer"


@dataclass(frozen=True, slots=True)
class _AtTime(KafkaOffsetsInitializer):
    moment: int

    def resolve(self, partitions: Collection[KafkaTopicPartition], lookup: OffsetLookup) -> Offsets:
        # The ends first: a record that comes in between is behind them, and not missed.
        ends = lookup.latest(partitions)
        return ends | lookup.at_time(partitions, self.moment)


@dataclass(frozen=True, slots=True)
class _Given(KafkaOffsetsInitializer):
    offsets_by_partition: tuple[tuple[KafkaTopicPartition, int], ...]
    strategy: KafkaOffsetResetStrategy

    def resolve(self, partitions: Collection[KafkaTopicPartition], lookup: OffsetLookup) -> Offsets:
        given = dict(self.offsets_by_partition)
        known = {p: given[p] for p in partitions if given.get(p, _COMMITTED) >= 0}
        missing = [p for p in partitions if p not in known]
        if lookup.group and missing:
            known |= lookup.committed(missing)
        missing = [p for p in partitions if p not in known]
        return known | _ByStrategy(self.strategy).resolve(missing, lookup)

    def moved_inside(self, offsets: Offsets, lookup: OffsetLookup) -> Offsets:
        given = [p for p, offset in self.offsets_by_partition if offsets.get(p) == offset]
        if self.strategy is KafkaOffsetResetStrategy.NONE or not given:
            return {}
        first, end = lookup.earliest(given), lookup.latest(given)
        outside = [p for p in given if not first[p] <= offsets[p] <= end[p]]
        return _ByStrategy(self.strategy).resolve(outside, lookup)

    def needs_group(self) -> str | None:
        committed = [p for p, offset in self.offsets_by_partition if offset == _COMMITTED]
        if not committed:
            return None
        return (
            f"Property group.id is required because partition {committed[0]} is initialized "
            "with committed offset"
        )
