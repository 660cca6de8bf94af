"""Schedules of several faults, made from seeds: a few here, hundreds by `make test-crash`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.crash.schedules import Schedule, main, play_in_a_new_place


@pytest.mark.crash
def test_schedules_of_faults_leave_no_trace() -> None:
    seeds = [9, 11, 17, 22, 25, 31, 40, 41]
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(play_in_a_new_place, seeds))
    assert all(outcome.is_good for outcome in outcomes), "\n".join(map(str, outcomes))


def test_a_seed_always_makes_the_same_schedule() -> None:
    assert Schedule.from_seed(17) == Schedule.from_seed(17)
    assert len({str(Schedule.from_seed(seed)) for seed in range(50)}) == 50


def test_wrong_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "--seeds" in capsys.readouterr().err
