from __future__ import annotations

import pickle
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.contracts.source import Boundedness, EnumeratorContext, SourceEnumerator
from penstock.testing import Burst, Idle, ManualClock, Pause, ScriptedSource
from tests.unit.support import collected, environment


def enumerator_of(source: ScriptedSource, parallelism: int = 1) -> SourceEnumerator:
    return source.enumerator(EnumeratorContext(parallelism, Path("none"), time.time, lambda: None))


def read_all(source: ScriptedSource, enumerator: SourceEnumerator, most: int) -> list[Any]:
    records: list[Any] = []
    while plan := enumerator.plan(most):
        for ranges in plan:
            for one in ranges:
                records += [r for chunk in source.read_lists(one) for r in chunk]
    return records


def test_a_burst_is_available_at_once_and_a_pause_is_kept() -> None:
    clock = ManualClock()
    source = ScriptedSource([Burst([1, 2]), Pause(3.0), Burst([3])], clock=clock)
    enumerator = enumerator_of(source)
    enumerator.start({})
    assert read_all(source, enumerator, 10) == [1, 2]
    clock.advance(2.9)
    assert read_all(source, enumerator, 10) == []
    assert not enumerator.finished()
    clock.advance(0.2)
    assert read_all(source, enumerator, 10) == [3]
    assert enumerator.finished()


def test_an_idle_split_stays_open_and_makes_the_source_unbounded() -> None:
    source = ScriptedSource({"a": [Burst([1]), Idle()], "b": [Burst([2])]})
    enumerator = enumerator_of(source)
    enumerator.start({})
    assert sorted(read_all(source, enumerator, 10)) == [1, 2]
    assert not enumerator.finished()
    assert enumerator.next_poll() is None
    assert source.boundedness() is Boundedness.CONTINUOUS_UNBOUNDED


def test_steps_after_idle_are_refused() -> None:
    with pytest.raises(ValueError, match="split '0' has steps after Idle"):
        ScriptedSource([Idle(), Burst([1])])


def test_a_position_after_the_script_is_refused() -> None:
    enumerator = enumerator_of(ScriptedSource([Burst([1, 2])]))
    with pytest.raises(ValueError, match="no record 3: it ends at 2"):
        enumerator.start({"0": 3})


def test_a_manual_clock_wakes_the_job_and_is_not_pickled() -> None:
    clock, woken = ManualClock(), threading.Event()
    source = ScriptedSource([Pause(1.0), Burst([1])], clock=clock)
    enumerator = source.enumerator(EnumeratorContext(1, Path("none"), time.time, woken.set))
    enumerator.start({})
    assert enumerator.next_poll() is None
    clock.advance(1.0)
    assert woken.is_set()
    assert enumerator.next_poll() == 0.0
    pickle.loads(pickle.dumps(source))


@settings(max_examples=60, deadline=None)
@given(
    bursts=st.lists(st.integers(0, 5), min_size=1, max_size=5),
    most=st.integers(1, 7),
    stop=st.integers(0, 25),
    parallelism=st.integers(1, 3),
)
def test_the_rest_after_any_position_is_read_in_order(
    bursts: list[int], most: int, stop: int, parallelism: int
) -> None:
    numbers = iter(range(1000))
    script = [Burst([next(numbers) for _ in range(n)]) for n in bursts]
    source = ScriptedSource({"x": script, "y": [Burst(range(2000, 2003))]})
    whole = [r for burst in script for r in burst.records]
    start = min(stop, len(whole))
    enumerator = enumerator_of(source, parallelism)
    enumerator.start({"x": start, "y": 1})
    records = read_all(source, enumerator, most)
    assert [r for r in records if r < 2000] == whole[start:]
    assert [r for r in records if r >= 2000] == [2001, 2002]
    assert enumerator.positions() == {"x": len(whole), "y": 3}
    assert enumerator.finished()


def test_a_job_reads_all_records() -> None:
    scripts: dict[str, list[Burst | Pause]] = {
        "fast": [Burst(range(50)), Pause(0.02), Burst(range(50, 60))],
        "slow": [Pause(0.01), Burst([100])],
    }
    env = environment(parallelism=2)
    source = ScriptedSource(scripts, Types.LONG())
    records = collected(env.from_source(source, WatermarkStrategy.no_watermarks(), "script"))
    assert sorted(records) == [*range(60), 100]
