"""Random schedules of faults, each made from a seed alone.

`python -m tests.crash.schedules --seeds 1-200` prints a line for each and fails if any of them
lost, doubled or falsified anything; `--seed 17` plays one again and keeps its directory.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.crash_points import CrashPoint
from penstock.testing import Verdict
from tests.crash.driver import has_ended, journal_of
from tests.crash.faults import (
    CrashAt,
    CrashBehind,
    Damage,
    DiskFull,
    Fault,
    KilledSavepoint,
    KilledStop,
    KillLater,
    Nothing,
    Rescale,
    StopAndRestore,
    Zombie,
)
from tests.crash.judge import judge, read_results
from tests.crash.pipeline import Variant

MOST_STARTS = 8


@dataclass(frozen=True, slots=True)
class Schedule:
    """A variant of the job, and what happens to it."""

    seed: int
    variant: Variant
    faults: tuple[Fault, ...]

    @staticmethod
    def from_seed(seed: int) -> Schedule:
        """Make a schedule; the same seed makes the same one."""
        rng = random.Random(seed)
        variant = _variant(rng)
        faults = tuple(rng.choice(_FAULTS)(rng, variant) for _ in range(rng.choice([1, 2, 2, 3])))
        return Schedule(seed, variant, faults)

    def __str__(self) -> str:
        v = self.variant
        trigger = f"{v.interval_ms} ms" if v.records is None else f"{v.records} records"
        sink = "parquet" if v.parquet else "rows"
        shape = f"{v.backend}/{v.parallelism} {sink} every {trigger}, {v.concurrent} at once"
        mode = "" if v.mode == "EXACTLY_ONCE" else f" {v.mode}"
        failures = f", {len(v.failures)} exceptions" if v.failures else ""
        return f"{shape}{mode}{failures}; " + "; ".join(map(str, self.faults))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a schedule went."""

    schedule: Schedule
    seconds: float
    attempts: int = 0
    verdict: Verdict | None = None
    failure: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether the job kept what its mode promises."""
        if self.failure is not None or self.verdict is None:
            return False
        match self.schedule.variant.mode:
            case "AT_MOST_ONCE":
                return self.verdict.is_at_most_once
            case "AT_LEAST_ONCE":
                return self.verdict.is_at_least_once
        return self.verdict.is_exactly_once

    def __str__(self) -> str:
        word = "ok  " if self.is_good else "FAIL"
        found = str(self.verdict) if self.failure is None else f"FAILED: {self.failure}"
        return (
            f"{word} seed {self.schedule.seed:>5} {self.seconds:5.1f} s {self.attempts} attempts: "
            f"{self.schedule} => {found}"
        )


def play(schedule: Schedule, directory: Path) -> Outcome:
    """Run the job through its faults and to its end, then judge what it has written."""
    began = time.monotonic()
    variant = msgspec.structs.replace(schedule.variant, directory=str(directory))
    attempts = 0
    try:
        for fault in schedule.faults:
            variant = fault.play(variant)
            if _is_over(variant):
                break
        for _ in range(MOST_STARTS):
            if _is_over(variant):
                break
            Nothing().play(variant)
        attempts = journal_of(variant).attempts_so_far
        verdict = judge(variant.fast, variant.slow, read_results(variant.output))
    except Exception as error:
        # Whatever it was, it belongs into this schedule's line and not into the way of the others.
        what = str(error) if isinstance(error, AssertionError) else repr(error)
        return Outcome(schedule, time.monotonic() - began, attempts, failure=what)
    return Outcome(schedule, time.monotonic() - began, attempts, verdict)


def _is_over(variant: Variant) -> bool:
    """Whether the job has come to its end, and not to a savepoint it shall go on from."""
    ended = journal_of(variant).ended
    return has_ended(variant) and not (
        ended is not None and ended.status.value == "STOPPED" and variant.restore == ended.savepoint
    )


def _variant(rng: random.Random) -> Variant:
    backend = rng.choice(["hashmap", "hashmap", "hashmap", "memory", "memory", "rocksdb"])
    by_records = rng.random() < 0.2
    small = backend == "rocksdb"
    return Variant(
        directory="",
        fast=360 if small else rng.choice([600, 900]),
        slow=30 if small else 60,
        parallelism=rng.choice([1, 2, 2, 3]),
        backend=backend,
        parquet=rng.random() < 0.3,
        rolls_at_checkpoint=rng.random() < 0.7,
        interval_ms=None if by_records else rng.choice([20, 30, 40, 60]),
        records=rng.choice([50, 120]) if by_records else None,
        concurrent=rng.choice([1, 1, 2]),
        mode=rng.choice(["EXACTLY_ONCE"] * 8 + ["AT_MOST_ONCE", "AT_LEAST_ONCE"]),
        retained=rng.choice([1, 1, 2, 3]),
        incremental=rng.random() < 0.5,
        synchronous=rng.random() < 0.2,
        failures=tuple(rng.sample(range(50, 900), rng.choice([1, 2])))
        if rng.random() < 0.25
        else (),
        max_batch=rng.choice([20, 60, 60, 200]),
        pause_ms=rng.choice([5, 12, 20]),
        lag_ms=rng.choice([0, 0, 30]),
    )


def _seconds(rng: random.Random) -> float:
    return round(rng.uniform(0.0, 0.9), 3)


_FAULTS: tuple[Callable[[random.Random, Variant], Fault], ...] = (
    *[lambda rng, _: CrashAt(rng.choice(list(CrashPoint)), rng.randint(1, 6))] * 4,
    lambda rng, _: CrashBehind(
        rng.choice([CrashPoint.COORDINATOR_COMPLETED, CrashPoint.JOB_FINISHING]),
        1,
        rng.choice([CrashPoint.JOURNAL_BEFORE_APPEND, CrashPoint.JOURNAL_AFTER_APPEND]),
        rng.randint(1, 4),
    ),
    *[lambda rng, _: KillLater(_seconds(rng))] * 4,
    lambda rng, _: Rescale(_seconds(rng), rng.randint(1, 3)),
    lambda rng, _: KilledSavepoint(
        rng.uniform(0.0, 0.6),
        rng.choice([None, None, CrashPoint.SAVEPOINT_WRITTEN]),
    ),
    lambda rng, v: StopAndRestore(
        rng.randint(1, 3),
        rng.choice([v.backend, "hashmap", "memory"]),
        drain=rng.random() < 0.3,
        claim=rng.random() < 0.3,
    ),
    lambda rng, _: KilledStop(
        rng.choice([p for p in CrashPoint if p.startswith(("sink", "coordinator", "journal"))]),
        rng.randint(1, 2),
        drain=rng.random() < 0.3,
    ),
    lambda rng, _: Zombie(
        rng.choice([p for p in CrashPoint if not p.startswith(("recovery", "savepoint"))]),
        rng.randint(1, 4),
        rng.uniform(0.0, 1.0),
    ),
    lambda rng, _: _disk_full(rng),
    lambda rng, _: Damage(
        rng.choice([CrashPoint.COORDINATOR_COMPLETED, CrashPoint.SINK_COMMITS_DONE]),
        rng.randint(2, 4),
        rng.randrange(1 << 30),
    ),
)


def _disk_full(rng: random.Random) -> DiskFull:
    first = rng.randint(1, 80)
    return DiskFull(
        rng.choice(["fsync", "fsync", "link"]), first, first + rng.choice([0, 0, 1, 5, 10_000])
    )


def main(arguments: list[str]) -> int:
    """Play schedules; the exit code is 1 if any of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.schedules")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seeds", help="a range such as 1-200")
    which.add_argument("--seed", type=int, help="one, whose directory is kept")
    parser.add_argument("--at-once", type=int, default=2, help="how many run beside each other")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        directory = Path(tempfile.mkdtemp(prefix="penstock-schedule-"))
        outcome = play(Schedule.from_seed(given.seed), directory)
        print(outcome, f"\nits files are in {directory}")
        return 0 if outcome.is_good else 1
    low, _, high = given.seeds.partition("-")
    seeds = range(int(low), int(high or low) + 1)
    began, outcomes = time.monotonic(), []
    with ThreadPoolExecutor(given.at_once) as pool:
        for outcome in pool.map(play_in_a_new_place, seeds):
            print(outcome, flush=True)
            outcomes.append(outcome)
    bad = [o for o in outcomes if not o.is_good]
    verdicts = [o.verdict for o in outcomes if o.verdict is not None]
    print(
        f"{len(outcomes)} schedules, {sum(o.attempts for o in outcomes)} attempts, "
        f"{sum(v.events for v in verdicts)} events, {sum(v.results for v in verdicts)} results, "
        f"{len(bad)} failed, {time.monotonic() - began:.0f} s"
    )
    return 1 if bad else 0


def play_in_a_new_place(seed: int) -> Outcome:
    """Play a seed's schedule in a directory that goes with it."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-schedule-"))
    try:
        return play(Schedule.from_seed(seed), directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
