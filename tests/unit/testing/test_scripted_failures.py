from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from penstock.testing import ManualClock, ScriptedError, ScriptedFailures


def test_it_fails_at_chosen_records_and_passes_all_others(tmp_path: Path) -> None:
    function = ScriptedFailures(tmp_path, on=[2, 4])
    seen = []
    for value in "abcde":
        try:
            seen.append(function.map(value))
        except ScriptedError as error:
            seen.append(error.args[0])
    assert seen == ["a", 2, "c", 4, "e"]


def test_a_new_instance_continues_the_count(tmp_path: Path) -> None:
    ScriptedFailures(tmp_path, on=[2]).map(1)
    with pytest.raises(ScriptedError):
        ScriptedFailures(tmp_path, on=[2]).map(1)
    assert ScriptedFailures(tmp_path, on=[2]).map(1) == 1


def failures_in(directory: Path) -> int:
    function, failures = ScriptedFailures(directory, on=range(1, 400, 7)), 0
    for _ in range(100):
        try:
            function.map(0)
        except ScriptedError:
            failures += 1
    return failures


def test_processes_count_together(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(3) as pool:
        failures = pool.map(failures_in, [tmp_path] * 4, chunksize=1)
    assert sum(failures) == len(range(1, 400, 7))


def test_a_manual_clock_moves_only_when_advanced() -> None:
    clock, times = ManualClock(100.0), []
    clock.when_moved(lambda: times.append(clock()))
    assert clock() == 100.0
    clock.advance(2.5)
    clock.set_back(1.0)
    assert (clock(), times) == (101.5, [102.5])
    with pytest.raises(ValueError, match="moves the clock forward"):
        clock.advance(-1)
