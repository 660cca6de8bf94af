"""The orders pipeline under faults, from seeds: a few here, fifty by `make test-crash`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from penstock.crash_points import CrashPoint
from penstock.testing.servers.kafka_files import KafkaFiles
from penstock.testing.servers.postgres_server import postgres_binaries
from tests.conftest import made_or_skipped, must_be_here
from tests.crash.orders.__main__ import main, new_directory, play_in_a_new_world
from tests.crash.orders.broken import BROKEN
from tests.crash.orders.faults import CrashAt
from tests.crash.orders.program import Variant
from tests.crash.orders.schedule import Family, Moment, Outcome, Schedule, play
from tests.crash.orders.world import World

FAULTS = {
    "KillDriver",
    "KillServer",
    "StopServer",
    "GoneAtCommit",
    "Zombie",
    "LostCommit",
    "DiskFull",
    "CrashAt",
}
EVENTS = 30_000
"""Less than in `make test-crash`, for the sake of time; the faults are the same."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made_or_skipped(KafkaFiles.in_cache().required)
    directory = new_directory()
    with made_or_skipped(lambda: World(directory)) as world:
        yield world
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest) -> Iterator[dict[int, Future[tuple[Outcome, Path]]]]:
    """Runs the selected seeds in parallel, each with its own servers."""
    made_or_skipped(KafkaFiles.in_cache().required)
    made_or_skipped(postgres_binaries)
    items = [i for i in request.session.items if isinstance(i, pytest.Function)]
    calls = [i.callspec for i in items if i.module is request.module and hasattr(i, "callspec")]
    seeds = [cast(int, call.params["seed"]) for call in calls if "seed" in call.params]
    with ThreadPoolExecutor(2) as pool:
        yield {
            seed: pool.submit(play_in_a_new_world, seed, Family.INLINE, EVENTS) for seed in seeds
        }


@pytest.mark.crash
@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [7, 26])
def test_orders_are_exact_whatever_dies(
    played: dict[int, Future[tuple[Outcome, Path]]], seed: int
) -> None:
    outcome, directory = played[seed].result()
    assert outcome.is_good, f"{outcome}\nits files are in {directory}"
    assert not (must_be_here() and outcome.unplayed), str(outcome)


@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.timeout(600)
def test_orders_are_exact_on_spark_whatever_dies(world: World) -> None:
    directory = new_directory()
    # Workers, the driver, the broker and the database are killed in this one.
    outcome = play(Schedule.from_seed(11, Family.SPARK), world, directory, EVENTS)
    assert outcome.is_good, f"{outcome}\nits files are in {directory}"
    assert not (must_be_here() and outcome.unplayed), str(outcome)
    shutil.rmtree(directory)


@pytest.mark.crash
@pytest.mark.kafka
@pytest.mark.postgres
def test_sinks_that_break_a_rule_are_noticed(world: World) -> None:
    # After the commits of both sinks; then, several times, after something was prepared.
    faults = [
        CrashAt(CrashPoint.SINK_COMMITTED, 4),
        *(CrashAt(CrashPoint.COORDINATOR_METADATA_WRITTEN, nth) for nth in (2, 3, 4)),
    ]
    moment = Moment(1, 0.0)
    schedule = Schedule(
        0,
        Variant("", interval_ms=200),
        tuple((moment, fault) for fault in faults),
        broken=" ".join(BROKEN),
    )
    directory = new_directory()
    outcome = play(schedule, world, directory, 10_000)
    assert "duplicated in the topic" in outcome.complaint
    assert "prepared transactions left open" in outcome.complaint
    assert "in the table" not in outcome.complaint
    shutil.rmtree(directory)


@pytest.mark.parametrize("family", Family)
def test_a_seed_always_makes_the_same_schedule(family: Family) -> None:
    assert Schedule.from_seed(17, family) == Schedule.from_seed(17, family)
    assert len({str(Schedule.from_seed(seed, family)) for seed in range(50)}) == 50


def test_fifty_seeds_contain_every_kind_of_fault_several_times() -> None:
    inline = [Schedule.from_seed(seed, Family.INLINE) for seed in range(1, 41)]
    spark = [Schedule.from_seed(seed, Family.SPARK) for seed in range(1, 11)]
    kinds = [type(fault).__name__ for schedule in inline for _, fault in schedule.faults]
    assert set(kinds) == FAULTS
    assert min(map(kinds.count, FAULTS)) >= 8
    for schedule in spark:
        assert "KillWorkers" in {type(fault).__name__ for _, fault in schedule.faults}
    assert all(3 <= len(schedule.faults) <= 6 for schedule in inline + spark)


def test_wrong_usage_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "--seeds" in capsys.readouterr().err


def test_other_users_may_enter_the_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert new_directory().stat().st_mode & 0o777 == 0o755
