from collections.abc import Collection

import cloudpickle
import pytest

from penstock.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    Offsets,
)
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.errors import InvalidJobError, MissingOffsetsError

A, B, C = (KafkaTopicPartition("t", number) for number in range(3))
LATEST, EARLIEST, NONE = KafkaOffsetResetStrategy


class Told:
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


def test_the_ends_are_found() -> None:
    assert KafkaOffsetsInitializer.earliest().resolve([A, B], Told()) == {A: 10, B: 10}
    assert KafkaOffsetsInitializer.latest().resolve([A, B], Told()) == {A: 20, B: 20}


def test_a_time_without_a_record_is_the_end() -> None:
    assert KafkaOffsetsInitializer.timestamp(12).resolve([A, B], Told()) == {A: 12, B: 20}


def test_committed_offsets_fall_back_to_the_strategy() -> None:
    committed = KafkaOffsetsInitializer.committed_offsets
    assert committed(EARLIEST).resolve([A, B], Told()) == {A: 15, B: 10}
    assert committed(LATEST).resolve([A, B], Told()) == {A: 15, B: 20}
    assert committed().resolve([A], Told()) == {A: 15}
    with pytest.raises(MissingOffsetsError, match="'g' has no committed offsets of t-1"):
        committed().resolve([A, B], Told())


def test_given_offsets_win_over_committed_ones_and_those_over_the_strategy() -> None:
    given = KafkaOffsetsInitializer.offsets({C: 13})
    assert given.resolve([A, B, C], Told()) == {A: 15, B: 10, C: 13}
    assert given.resolve([A, B, C], Told(group=None)) == {A: 10, B: 10, C: 13}
    strict = KafkaOffsetsInitializer.offsets({C: 13}, NONE)
    with pytest.raises(MissingOffsetsError):
        strict.resolve([B, C], Told())


def test_given_offsets_outside_are_moved_by_the_strategy_where_a_source_begins() -> None:
    offsets = {A: 9, B: 21, C: 20}
    assert KafkaOffsetsInitializer.offsets(offsets).moved_inside(offsets, Told()) == {A: 10, B: 10}
    latest = KafkaOffsetsInitializer.offsets(offsets, LATEST)
    assert latest.moved_inside(offsets, Told()) == {A: 20, B: 20}
    assert KafkaOffsetsInitializer.offsets(offsets, NONE).moved_inside(offsets, Told()) == {}


def test_an_offset_to_stop_at_may_lie_in_the_future() -> None:
    assert KafkaOffsetsInitializer.offsets({A: 99}).resolve([A], Told()) == {A: 99}


def test_only_committed_offsets_need_a_group() -> None:
    assert KafkaOffsetsInitializer.committed_offsets().needs_group() is not None
    assert KafkaOffsetsInitializer.offsets({A: -3}).needs_group() is not None
    assert KafkaOffsetsInitializer.offsets({A: 3}).needs_group() is None
    assert KafkaOffsetsInitializer.earliest().needs_group() is None


def test_what_is_no_offset_is_refused() -> None:
    with pytest.raises(InvalidJobError, match="not negative"):
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


def test_what_is_no_strategy_is_refused() -> None:
    with pytest.raises(InvalidJobError, match="a KafkaOffsetResetStrategy; got 'x'"):
        KafkaOffsetsInitializer.committed_offsets("x")  # type: ignore[arg-type]
    with pytest.raises(InvalidJobError, match="a KafkaOffsetResetStrategy; got 'x'"):
        KafkaOffsetsInitializer.offsets({A: 1}, "x")  # type: ignore[arg-type]


def test_initializers_travel_to_tasks() -> None:
    given = KafkaOffsetsInitializer.offsets({A: 3})
    assert cloudpickle.loads(cloudpickle.dumps(given)) == given
