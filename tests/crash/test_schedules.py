"""Schedules of several faults, made from seeds: a few here, hundreds by `make test-crash`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from penstock.crash_points import CrashPoint
from penstock.testing.servers.s3_server import s3_binary
from tests.conftest import made_or_skipped
from tests.crash.file_faults import ChangedInput, FullFileSystem
from tests.crash.hostile_faults import TakenOver
from tests.crash.pipeline import EXCHANGE, Variant
from tests.crash.schedule_parts import Family
from tests.crash.schedules import Schedule, main, play, play_in_a_new_place

HOSTILE_SEEDS = [2, 10, 12, 13, 18, 45, 75, 130, 142]
"""Each kind of fault of that family at least once, on both kinds of sink."""

STORE_SEEDS = [2, 3, 5, 8, 9, 31, 36, 37]
"""Killed servers, savepoints that are stopped, restored and claimed, zombies, all backends."""


@pytest.mark.crash
def test_schedules_of_faults_keep_the_output_exact() -> None:
    seeds = [9, 11, 17, 22, 25, 31, 40, 41]
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(play_in_a_new_place, seeds))
    assert all(outcome.is_good for outcome in outcomes), "\n".join(map(str, outcomes))


@pytest.mark.crash
def test_hostile_surroundings_keep_what_the_guarantee_promises() -> None:
    play_hostile = partial(play_in_a_new_place, family=Family.HOSTILE)
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(play_hostile, HOSTILE_SEEDS))
    assert all(outcome.is_good for outcome in outcomes), "\n".join(map(str, outcomes))


@pytest.mark.crash
@pytest.mark.s3
def test_checkpoints_in_s3_keep_the_output_exact_though_its_server_is_killed() -> None:
    made_or_skipped(s3_binary)
    with ThreadPoolExecutor(2) as pool:
        play_in_store = partial(play_in_a_new_place, family=Family.STORES)
        outcomes = list(pool.map(play_in_store, STORE_SEEDS))
    assert all(outcome.is_good for outcome in outcomes), "\n".join(map(str, outcomes))


@pytest.mark.crash
def test_a_driver_that_hangs_after_the_end_of_its_job_does_not_make_it_run_twice(
    tmp_path: Path,
) -> None:
    hangs = TakenOver(CrashPoint.JOB_FINISHED, 1, thaw_after=0.1, kill_after=0.1)
    outcome = play(Schedule(0, Variant("", fast=120, slow=12), (hangs,)), tmp_path)
    assert outcome.is_good, str(outcome)


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["truncated", "replaced"])
def test_a_file_that_changes_while_it_is_read_costs_nothing_once_it_is_put_back(
    tmp_path: Path, kind: str
) -> None:
    variant = Variant("", fast=300, slow=12, pause_ms=60, files="bounded")
    changed = ChangedInput(kind, seconds=0.0, kill_after=0.02)
    outcome = play(Schedule(0, variant, (changed,)), tmp_path)
    assert outcome.is_good, str(outcome)
    # It is found by the driver that resumes, and the one after that one reads the old content.
    assert len(list(tmp_path.glob("start-*.log"))) == 3


@pytest.mark.crash
@pytest.mark.parametrize("small", ["checkpoints", "work"])
def test_a_full_file_system_is_named_and_costs_nothing_once_there_is_space(
    tmp_path: Path, small: str
) -> None:
    variant = Variant("", fast=200, slow=12, small=small)
    outcome = play(Schedule(0, variant, (FullFileSystem(0.0),)), tmp_path)
    if outcome.skipped is not None:
        pytest.skip(outcome.skipped)
    assert outcome.is_good, str(outcome)
    assert outcome.attempts > 1


@pytest.mark.parametrize("family", Family)
def test_a_seed_always_makes_the_same_schedule(family: Family) -> None:
    assert Schedule.from_seed(17, family) == Schedule.from_seed(17, family)
    assert len({str(Schedule.from_seed(seed, family)) for seed in range(50)}) == 50


def test_joined_schedules_use_every_kind_of_barrier_handling() -> None:
    variants = [Schedule.from_seed(seed, Family.JOINED).variant for seed in range(50)]
    ways = {(v.unaligned, v.aligned_timeout_ms > 0, v.mode) for v in variants}
    assert len(ways) == 4
    assert {v.settings[EXCHANGE] for v in variants} == {"channel", "shuffle"}


def test_wrong_usage_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "--seeds" in capsys.readouterr().err
