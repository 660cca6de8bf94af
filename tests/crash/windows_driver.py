"""Starts the job of windows, timers and rules, and kills it: at points of the protocol, or not."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import msgspec

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.crash_points import CrashPoint
from penstock.ids import JobKey
from tests.crash import driver
from tests.crash.job_shape import JOB, Shape

TIMES = {
    CrashPoint.STAGE_BEFORE_MANIFEST: (10, 25),
    CrashPoint.STAGE_AFTER_MANIFEST: (10, 25),
    CrashPoint.JOURNAL_BEFORE_APPEND: (5, 9),
    CrashPoint.JOURNAL_AFTER_APPEND: (5, 9),
    CrashPoint.STAGE_BARRIER_FORWARDED: (4, 8),
    CrashPoint.STAGE_SNAPSHOT_FROZEN: (4, 8),
    CrashPoint.STAGE_SNAPSHOT_DURABLE: (4, 8),
    CrashPoint.COORDINATOR_ACKNOWLEDGED: (4, 8),
}
"""How often a point is passed first where it is passed more than once per checkpoint."""
SELDOM = ("savepoint", "job", "stage.in-flight")
"""Points that such a job does not pass, or only when nothing is left to be killed."""
POINTS = [point for point in CrashPoint if not point.startswith(SELDOM)]


class Driver(driver.Driver):
    program = "tests.crash.windows_program"


@contextmanager
def started(shape: Shape, environment: Mapping[str, str] | None = None) -> Iterator[Driver]:
    process = Driver(shape, environment)
    try:
        yield process
    finally:
        process.kill()


def journal_of(shape: Shape) -> JournalState:
    return Journal(JobDir(shape.checkpoints, JobKey(JOB)).storage, JOB).state()


def checkpoints(shape: Shape) -> int:
    return max((c.checkpoint for c in journal_of(shape).completed), default=0)


def has_reached(shape: Shape, checkpoint: int) -> bool:
    return checkpoints(shape) >= checkpoint


def kill_anywhere(shape: Shape, rng: random.Random, kills: int) -> None:
    """Start the job again and again, and kill it somewhere after another checkpoint."""
    for _ in range(kills):
        wanted = checkpoints(shape) + 1
        with started(shape) as process:
            process.wait_until(partial(has_reached, shape, wanted))
            time.sleep(rng.uniform(0.0, 0.3))
            assert process.kill() in (0, -9), process.words()
            if journal_of(shape).ended is not None:
                # Starting a job that has ended would run it again.
                return
    finish(shape)


def kill_at_points(shape: Shape, rng: random.Random, kills: int) -> None:
    """Start the job again and again, each time to die at another point of the protocol."""
    for _ in range(kills):
        # There is nothing to recover before the first checkpoint.
        known = [p for p in POINTS if checkpoints(shape) or not p.startswith("recovery")]
        point = rng.choice(known)
        nth = 1 if point.startswith("recovery") else rng.randint(*TIMES.get(point, (2, 3)))
        with started(shape, driver.crash_at(point, nth)) as process:
            ended = process.wait()
            assert ended in (0, -9), process.words()
            if ended == 0:
                return
    finish(shape)


def finish(shape: Shape) -> None:
    """Run the job to its end, as fast as it can: only while it is killed it needs its time."""
    with started(msgspec.structs.replace(shape, per_second=10_000)) as last:
        assert last.wait() == 0, last.words()
