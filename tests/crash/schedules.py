"""Random schedules of faults, each made from a seed alone.

`python -m tests.crash.schedules --seeds 1-200` prints a line for each and fails if any of them
lost, doubled or falsified anything; `--seed 17` plays one again and keeps its directory. With
`--family joined` the two sources are inputs of one step, in all modes that barriers have; with
`--family spark` the same runs on Spark.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from penstock.checkpoint.history import History
from penstock.errors import MissingServerError
from penstock.testing import VerificationResult
from penstock.testing.scripted_failures import ScriptedError
from tests.crash.driver import has_ended, job_dir, journal_of
from tests.crash.faults import Fault, Nothing
from tests.crash.file_input import FILES, publish
from tests.crash.job_store import job_store
from tests.crash.ledger_input import RIVAL
from tests.crash.output_verifier import read_results, verify_output
from tests.crash.pipeline import EXCHANGE, Variant
from tests.crash.schedule_parts import Family
from tests.servers.small_disk import small_disk

DISK_MB = 16
MOST_STARTS = 8


@dataclass(frozen=True, slots=True)
class Schedule:
    """A variant of the job, and what happens to it."""

    seed: int
    variant: Variant
    faults: tuple[Fault, ...]

    @staticmethod
    def from_seed(seed: int, family: Family = Family.UNITED) -> Schedule:
        """Make a schedule; the same seed makes the same one."""
        rng = random.Random(seed)
        variant = family.variant(rng)
        return Schedule(seed, variant, family.faults(rng, variant))

    def __str__(self) -> str:
        v = self.variant
        trigger = f"{v.interval_ms} ms" if v.records is None else f"{v.records} records"
        sink = "parquet" if v.parquet else "rows"
        inputs = "joined" if v.joins else "united"
        exchange = v.settings.get(EXCHANGE, "channel")
        shape = (
            f"{inputs} by {exchange} {v.backend}/{v.parallelism} {sink} every {trigger}, "
            f"{v.concurrent} at once"
        )
        mode = "" if v.mode == "EXACTLY_ONCE" else f" {v.mode}"
        if v.unaligned:
            mode = f" unaligned after {v.aligned_timeout_ms} ms"
        failures = f", {len(v.failures)} exceptions" if v.failures else ""
        files = f", {v.files} files" if v.files else ""
        small = f", {v.small} on a small disk" if v.small else ""
        store = ", in S3" if v.in_store else ""
        store += f", on separate hosts, {len(v.moves)} moves" if v.separate else ""
        return f"{shape}{mode}{failures}{files}{small}{store}; " + "; ".join(map(str, self.faults))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a schedule went."""

    schedule: Schedule
    seconds: float
    attempts: int = 0
    verdict: VerificationResult | None = None
    failure: str | None = None
    causes: tuple[str, ...] = ()
    """Why attempts began that followed others in the same process."""
    skipped: str | None = None
    """Why it was not played."""

    @property
    def is_good(self) -> bool:
        """Whether the job kept what its mode promises."""
        if self.skipped is not None:
            return True
        if self.failure is not None or self.verdict is None:
            return False
        match self.schedule.variant.mode:
            case "AT_MOST_ONCE":
                return self.verdict.is_at_most_once
            case "AT_LEAST_ONCE":
                # Only what fails repeats anything.
                is_once = self.attempts > 1 or self.verdict.is_exactly_once
                return self.verdict.is_at_least_once and is_once
        return self.verdict.is_exactly_once

    def __str__(self) -> str:
        if self.skipped is not None:
            return f"skip seed {self.schedule.seed:>5}: {self.schedule} => {self.skipped}"
        word = "ok  " if self.is_good else "FAIL"
        found = str(self.verdict) if self.failure is None else f"FAILED: {self.failure}"
        causes = f"; failed of {' | '.join(self.causes)}" if self.causes else ""
        return (
            f"{word} seed {self.schedule.seed:>5} {self.seconds:5.1f} s {self.attempts} attempts: "
            f"{self.schedule} => {found}{causes}"
        )


def play(schedule: Schedule, directory: Path) -> Outcome:
    """Run the job through its faults and to its end, then verify its output."""
    with ExitStack() as mounted:
        variant = msgspec.structs.replace(schedule.variant, directory=str(directory))
        if variant.small:
            try:
                disk = mounted.enter_context(small_disk(DISK_MB))
            except MissingServerError as missing:
                return Outcome(schedule, 0.0, skipped=str(missing))
            variant = msgspec.structs.replace(variant, disk=str(disk.path))
        if variant.in_store:
            try:
                variant = mounted.enter_context(job_store(variant))
            except MissingServerError as missing:
                return Outcome(schedule, 0.0, skipped=str(missing))
        return _play(schedule, variant)


def _play(schedule: Schedule, variant: Variant) -> Outcome:
    began, attempts = time.monotonic(), 0
    try:
        if variant.files:
            lay_out(variant)
        for fault in schedule.faults:
            variant = fault.play(variant)
            if _is_over(variant):
                break
        for _ in range(MOST_STARTS):
            if _is_over(variant):
                break
            Nothing().play(variant)
        attempts = journal_of(variant).attempts_so_far
        verdict = verdict_of(variant)
    except Exception as error:
        # Whatever it was, it belongs into this schedule's line and not into the way of the others.
        what = str(error) if isinstance(error, AssertionError) else repr(error)
        return Outcome(schedule, time.monotonic() - began, attempts, failure=what)
    return Outcome(
        schedule, time.monotonic() - began, attempts, verdict, causes=tuple(_causes(variant))
    )


def lay_out(variant: Variant) -> None:
    """Write the input files that are there before the job: all, or the first of a watched one."""
    variant.input.mkdir()
    for number in range(FILES if variant.files == "bounded" else 1):
        publish(variant.input, number, variant.fast)


def _causes(variant: Variant) -> Iterator[str]:
    """The unscripted failures of attempts."""
    for failed in History(job_dir(variant).storage).exceptions():
        if ScriptedError.__name__ not in failed.message:
            yield failed.message.splitlines()[0][:200]


def _is_over(variant: Variant) -> bool:
    """Whether the job has ended, and not with a savepoint from which it resumes."""
    ended = journal_of(variant).ended
    if ended is not None and ended.savepoint is not None and variant.restore == ended.savepoint:
        return False
    return has_ended(variant)


def verdict_of(variant: Variant) -> VerificationResult:
    """Verify the output of a variant of the job."""
    results = [*read_results(variant.output), *read_results(variant.consumed)]
    own = [r for r in results if r.event < RIVAL]
    verdict = verify_output(variant.fast, variant.slow, own, joins=variant.joins)
    if not variant.has_rival:
        return verdict
    rival, others = variant.rival(), [r for r in results if r.event >= RIVAL]
    found = verify_output(rival.fast, rival.slow, others, first=rival.first)
    if found.is_exactly_once:
        return verdict
    return replace(verdict, wrong=(*verdict.wrong, f"the other job of this name has {found}"))


def main(arguments: list[str]) -> int:
    """Play schedules; the exit code is 1 if any of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.schedules")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seeds", help="a range such as 1-200")
    which.add_argument("--seed", type=int, help="one, whose directory is kept")
    parser.add_argument("--at-once", type=int, default=2, help="how many run beside each other")
    parser.add_argument("--family", type=Family, choices=list(Family), default=Family.UNITED)
    given = parser.parse_args(arguments)
    if given.seed is not None:
        directory = Path(tempfile.mkdtemp(prefix="penstock-schedule-"))
        outcome = play(Schedule.from_seed(given.seed, given.family), directory)
        print(outcome, f"\nits files are in {directory}")
        return 0 if outcome.is_good else 1
    low, _, high = given.seeds.partition("-")
    seeds = range(int(low), int(high or low) + 1)
    began, outcomes = time.monotonic(), []
    with ThreadPoolExecutor(given.at_once) as pool:
        for outcome in pool.map(partial(play_in_a_new_place, family=given.family), seeds):
            print(outcome, flush=True)
            outcomes.append(outcome)
    bad = [o for o in outcomes if not o.is_good]
    verdicts = [o.verdict for o in outcomes if o.verdict is not None]
    print(
        f"{len(outcomes)} schedules, {sum(o.attempts for o in outcomes)} attempts, "
        f"{sum(v.events for v in verdicts)} events, {sum(v.results for v in verdicts)} results, "
        f"{len(bad)} failed, {_skipped(outcomes)}{time.monotonic() - began:.0f} s"
    )
    return 1 if bad else 0


def _skipped(outcomes: list[Outcome]) -> str:
    skipped = sum(1 for outcome in outcomes if outcome.skipped is not None)
    return f"{skipped} skipped, " if skipped else ""


def play_in_a_new_place(seed: int, family: Family = Family.UNITED) -> Outcome:
    """Play a seed's schedule in a directory that goes with it."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-schedule-"))
    try:
        return play(Schedule.from_seed(seed, family), directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
