"""Windows that are restored into a program with another allowed lateness."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from penstock.common import Time, Types
from penstock.datastream.functions import ProcessWindowFunction, ReduceFunction
from penstock.datastream.window import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    PurgingTrigger,
    TumblingEventTimeWindows,
)
from tests.unit.support import environment
from tests.unit.task.window.harness import Event, Windows, operation_of

TEN = TumblingEventTimeWindows.of(Time.milliseconds(10))
GAP = EventTimeSessionWindows.with_gap(Time.milliseconds(5))


class Lists(ProcessWindowFunction[int, Any, str, Any]):
    """Gives all that is in a window."""

    def process(self, key: str, context: Any, elements: Iterable[int]) -> Any:
        yield sorted(elements)


class Sum(ReduceFunction[int]):
    """Adds."""

    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


def windowed(kind: str, lateness: int) -> Any:
    keys = environment().from_collection([1], Types.LONG()).key_by(lambda v: v)
    windows = keys.window(GAP if kind == "sessions" else TEN).allowed_lateness(lateness)
    if kind == "purging":
        windows = windows.trigger(PurgingTrigger.of(EventTimeTrigger.create()))
    return windows.reduce(Sum()) if kind == "aggregated" else windows.process(Lists())


def restored(windows: Windows, kind: str, lateness: int) -> None:
    """Continue as a program with another lateness would."""
    windows.crash()
    windows._operation = operation_of(windowed(kind, lateness))


KINDS = pytest.mark.parametrize("kind", ["lists", "aggregated", "sessions", "purging"])
CHANGES = pytest.mark.parametrize(
    ("before", "after"), [(0, 20), (20, 0), (5, 20), (20, 5), (0, 0), (20, 20)]
)


@KINDS
@CHANGES
@pytest.mark.parametrize("fired", [False, True])
def test_a_window_is_cleared_after_any_change_of_the_lateness(
    kind: str, before: int, after: int, fired: bool
) -> None:
    windows = Windows(operation_of(windowed(kind, before)))
    windows.batch([Event("a", 3, 3), Event("b", 4, 4)], 12 if fired else 5)
    restored(windows, kind, after)
    # A record on time shows that timers are not only set for new windows.
    windows.batch([] if fired else [Event("a", 6, 6)], 13)
    windows.batch([], 60)
    assert windows.entries() == 0


@KINDS
def test_a_longer_lateness_counts_for_windows_that_were_restored(kind: str) -> None:
    windows = Windows(operation_of(windowed(kind, 0)))
    windows.batch([Event("a", 3, 3)], 5)
    restored(windows, kind, 20)
    assert len(windows.batch([], 12)) == 1
    late = windows.batch([Event("a", 4, 4)], 15)
    assert len(late) == 1
    windows.batch([], 60)
    assert windows.entries() == 0
    assert windows.batch([Event("a", 4, 4)], 61) == [], "the window is over"
