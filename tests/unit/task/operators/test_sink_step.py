"""Records that are collected in blocks before a sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from penstock.common import Types
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.contracts.sink import (
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)
from penstock.errors import StepError, UserFunctionError
from tests.unit.support import environment

_written: list[tuple[str, Any]] = []
"""What writers got, and how: in an inline job they share this process."""


class Writer(SinkWriter):
    """Writes numbers below ten in blocks; fails on 13."""

    supports_write_many = True

    def write(self, value: Any) -> None:
        if value == 13:
            message = "no luck"
            raise ValueError(message)
        _written.append(("one", value))

    def write_many(self, values: list[Any]) -> bool:
        if 99 in values:
            message = "no space"
            raise OSError(message)
        if any(not isinstance(value, int) or value >= 10 for value in values):
            return False
        _written.append(("many", list(values)))
        return True

    def stage(self) -> bytes:
        return msgspec.json.encode(len(_written))


class Publisher(SinkPublisher):
    def publish(self, staged: Sequence[bytes]) -> None:
        pass


class Blocks(Sink):
    def writer(self, context: WriterContext) -> SinkWriter:
        return Writer()

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        return Publisher()


def taken(numbers: list[Any], declared: TypeInformation | None = None) -> list[tuple[str, Any]]:
    _written.clear()
    env = environment()
    made = env.from_collection(numbers).map(lambda n: n, declared or Types.LONG())
    made.sink_to(Blocks()).name("blocks")
    env.execute()
    return list(_written)


def test_records_come_together_and_in_order() -> None:
    assert taken([3, 1, 2]) == [("many", [3, 1, 2])]


def test_a_flat_map_may_fill_several_blocks() -> None:
    _written.clear()
    env = environment()
    made = env.from_collection([1]).flat_map(lambda _: [1] * 10_000, Types.LONG())
    made.sink_to(Blocks())
    env.execute()
    assert [len(block) for _, block in _written] == [512] * 19 + [272]


def test_a_refused_block_is_written_record_by_record() -> None:
    assert taken([3, 10, 2]) == [("one", 3), ("one", 10), ("one", 2)]


def test_the_record_that_cannot_be_written_is_named() -> None:
    with pytest.raises(UserFunctionError, match=r"step 'blocks' failed on record 13: .*no luck"):
        taken([3, 13, 2])


def test_a_record_of_another_type_is_named() -> None:
    with pytest.raises(StepError, match=r"step 'Map' stopped on record 'a'.*test_sink_step.py:67"):
        taken([3, "a", 2])


def test_the_error_of_a_block_names_its_size() -> None:
    with pytest.raises(UserFunctionError, match=r"'blocks'.*write_many\(\) with 2 .*no space"):
        taken([3, 99])


def test_mutable_records_are_not_collected_in_blocks() -> None:
    assert taken([3, 1], Types.PICKLED_BYTE_ARRAY()) == [("one", 3), ("one", 1)]
