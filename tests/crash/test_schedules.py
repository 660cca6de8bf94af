"""Schedules of several faults, made from seeds: a few here, hundreds by `make test-crash`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.schedules import Schedule, main, play


@pytest.mark.crash
@pytest.mark.parametrize("seed", [3, 9, 11, 14, 17, 22, 25, 31])
def test_a_schedule_of_faults_leaves_no_trace(tmp_path: Path, seed: int) -> None:
    outcome = play(Schedule.from_seed(seed), tmp_path)
    assert outcome.is_good, outcome


def test_a_seed_always_makes_the_same_schedule() -> None:
    assert Schedule.from_seed(17) == Schedule.from_seed(17)
    assert len({str(Schedule.from_seed(seed)) for seed in range(50)}) == 50


def test_wrong_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "--seeds" in capsys.readouterr().err
