from collections.abc import Collection

import cloudpickle
import pytest

from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.connectors.kafka.source.offsets_initializer import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    Offsets,
)
from penstock.errors import InvalidJobError, MissingOffsetsError

A, B, C = (KafkaTopicPartition("t", number) for number in range(3))
LATEST, EARLIEST, NONE = KafkaOffsetResetStrategy


class FakeBroker:
    """A broker whose partitions hold 10 to 20, and whose group has read A to 15."""

    def __init__(self, group: str | None = "g") -> None:
        self.group = group

    def earliest(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        return dict.fromkeys(partitions, 10)

    def latest(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        return dict.fromkeys(partitions, 20)

    def committed(self, partitions: Collection[KafkaTopicPartition]) -> Offsets:
        return {p: 15 for p in partitions if p == A}

    def at_time(self, partitions: Collection[KafkaTopicPartition], timestamp: int) -> Offsets:
        return {p: timestamp for p in partitions if p != B}


def test_earliest_and_latest_offsets_are_resolved() -> None:
    assert KafkaOffsetsInitializer.earliest().resolve([A, B], FakeBroker()) == {A: 10, B: 10}
    assert KafkaOffsetsInitializer.latest().resolve([A, B], FakeBroker()) == {A: 20, B: 20}


def test_a_timestamp_after_the_last_record_resolves_to_the_end() -> None:
    assert KafkaOffsetsInitializer.timestamp(12).resolve([A, B], FakeBroker()) == {A: 12, B: 20}


def test_committed_offsets_fall_back_to_the_strategy() -> None:
    committed = KafkaOffsetsInitializer.committed_offsets
    assert committed(EARLIEST).resolve([A, B], FakeBroker()) == {A: 15, B: 10}
    assert committed(LATEST).resolve([A, B], FakeBroker()) == {A: 15, B: 20}
    assert committed().resolve([A], FakeBroker()) == {A: 15}
    with pytest.raises(MissingOffsetsError, match="'g' has no committed offsets of t-1"):
        committed().resolve([A, B], FakeBroker())


def test_explicit_offsets_precede_committed_ones_and_those_the_strategy() -> None:
    given = KafkaOffsetsInitializer.offsets({C: 13})
    assert given.resolve([A, B, C], FakeBroker()) == {A: 15, B: 10, C: 13}
    assert given.resolve([A, B, C], FakeBroker(group=None)) == {A: 10, B: 10, C: 13}
    strict = KafkaOffsetsInitializer.offsets({C: 13}, NONE)
    with pytest.raises(MissingOffsetsError):
        strict.resolve([B, C], FakeBroker())


def test_starting_offsets_out_of_range_are_reset_by_the_strategy() -> None:
    offsets = {A: 9, B: 21, C: 20}
    assert KafkaOffsetsInitializer.offsets(offsets).reset_out_of_range(offsets, FakeBroker()) == {
        A: 10,
        B: 10,
    }
    latest = KafkaOffsetsInitializer.offsets(offsets, LATEST)
    assert latest.reset_out_of_range(offsets, FakeBroker()) == {A: 20, B: 20}
    assert (
        KafkaOffsetsInitializer.offsets(offsets, NONE).reset_out_of_range(offsets, FakeBroker())
        == {}
    )


def test_a_stopping_offset_may_lie_in_the_future() -> None:
    assert KafkaOffsetsInitializer.offsets({A: 99}).resolve([A], FakeBroker()) == {A: 99}


def test_only_committed_offsets_need_a_group() -> None:
    assert KafkaOffsetsInitializer.committed_offsets().needs_group() is not None
    assert KafkaOffsetsInitializer.offsets({A: -3}).needs_group() is not None
    assert KafkaOffsetsInitializer.offsets({A: 3}).needs_group() is None
    assert KafkaOffsetsInitializer.earliest().needs_group() is None


def test_invalid_offsets_are_rejected() -> None:
    with pytest.raises(InvalidJobError, match="no negative offsets"):
        KafkaOffsetsInitializer.offsets({A: -1})
    with pytest.raises(InvalidJobError, match="KafkaTopicPartition"):
        KafkaOffsetsInitializer.offsets({"t": 1})  # type: ignore[dict-item]
    with pytest.raises(InvalidJobError, match="milliseconds"):
        KafkaOffsetsInitializer.timestamp(-1)
    with pytest.raises(InvalidJobError, match="milliseconds since 1970; got True"):
        KafkaOffsetsInitializer.timestamp(True)
    with pytest.raises(InvalidJobError, match=r"offsets by KafkaTopicPartition; got \[1\]"):
        KafkaOffsetsInitializer.offsets([1])  # type: ignore[arg-type]
    with pytest.raises(InvalidJobError, match="got True for"):
        KafkaOffsetsInitializer.offsets({A: True})


def test_invalid_strategies_are_rejected() -> None:
    with pytest.raises(InvalidJobError, match="a KafkaOffsetResetStrategy; got 'x'"):
        KafkaOffsetsInitializer.committed_offsets("x")  # type: ignore[arg-type]
    with pytest.raises(InvalidJobError, match="a KafkaOffsetResetStrategy; got 'x'"):
        KafkaOffsetsInitializer.offsets({A: 1}, "x")  # type: ignore[arg-type]


def test_initializers_can_be_pickled() -> None:
    given = KafkaOffsetsInitializer.offsets({A: 3})
    assert cloudpickle.loads(cloudpickle.dumps(given)) == given
