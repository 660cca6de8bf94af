"""Records that wait for each other in front of a sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from penstock.common import Types
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.sink import (
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)
from penstock.errors import UserFunctionError
from tests.unit.support import environment

_taken: list[tuple[str, Any]] = []
"""What came to writers, and how: in an inline job they share this process."""


class Writer(SinkWriter):
    """Takes numbers below ten at once; does not like 13 at all."""

    takes_many = True

    def write(self, value: Any) -> None:
        if value == 13:
            message = "no luck"
            raise ValueError(message)
        _taken.append(("one", value))

    def write_many(self, values: list[Any]) -> bool:
        if 99 in values:
            message = "no space"
            raise OSError(message)
        if any(not isinstance(value, int) or value >= 10 for value in values):
            return False
        _taken.append(("many", list(values)))
        return True

    def stage(self) -> bytes:
        return msgspec.json.encode(len(_taken))


class Publisher(SinkPublisher):
    def publish(self, staged: Sequence[bytes]) -> None:
        pass


class Blocks(Sink):
    def writer(self, context: WriterContext) -> SinkWriter:
        return Writer()

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        return Publisher()


def taken(numbers: list[Any], declared: TypeInformation | None = None) -> list[tuple[str, Any]]:
    _taken.clear()
    env = environment()
    made = env.from_collection(numbers).map(lambda n: n, declared or Types.LONG())
    made.sink_to(Blocks()).name("blocks")
    env.execute()
    return list(_taken)


def test_records_come_together_and_in_order() -> None:
    assert taken([3, 1, 2]) == [("many", [3, 1, 2])]


def test_blocks_have_an_end_though_one_record_becomes_many() -> None:
    _taken.clear()
    env = environment()
    made = env.from_collection([1]).flat_map(lambda _: [1] * 10_000, Types.LONG())
    made.sink_to(Blocks())
    env.execute()
    assert [len(block) for _, block in _taken] == [512] * 19 + [272]


def test_a_block_that_is_refused_comes_one_by_one() -> None:
    assert taken([3, 10, 2]) == [("one", 3), ("one", 10), ("one", 2)]


def test_the_record_that_cannot_be_written_is_named() -> None:
    with pytest.raises(UserFunctionError, match=r"step 'blocks' failed on record 13: .*no luck"):
        taken([3, 13, 2])


def test_a_record_of_another_type_is_named() -> None:
    with pytest.raises(Exception, match=r"step 'blocks'.*'a'"):
        taken([3, "a", 2])


def test_a_block_that_cannot_be_written_is_told_with_its_size() -> None:
    with pytest.raises(UserFunctionError, match=r"'blocks'.*write_many\(\) with 2 .*no space"):
        taken([3, 99])


def test_records_that_can_be_changed_do_not_wait() -> None:
    assert taken([3, 1], Types.PICKLED_BYTE_ARRAY()) == [("one", 3), ("one", 1)]
