"""What happens in one run of the orders pipeline, made from a seed alone, and how it went."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from penstock.crash_points import CrashPoint
from tests.crash.orders.events import orders, stops
from tests.crash.orders.faults import (
    CrashAt,
    DiskFull,
    Fault,
    GoneAtCommit,
    KillDriver,
    KillServer,
    KillWorkers,
    LostCommit,
    StopServer,
    Zombie,
)
from tests.crash.orders.program import Variant
from tests.crash.orders.run import Run
from tests.crash.orders.verifier import look, verify_output
from tests.crash.orders.world import Part, World
from tests.servers.cutting_proxy import Loss

EVENTS = 200_000
LONGEST_REST_S = 400.0
MakeFault = Callable[[random.Random], Fault]

COMMIT_POINTS = (
    CrashPoint.STAGE_SNAPSHOT_DURABLE,
    CrashPoint.COORDINATOR_METADATA_WRITTEN,
    CrashPoint.COORDINATOR_COMPLETED,
    CrashPoint.SINK_COMMITS_STARTED,
    CrashPoint.SINK_COMMITTED,
    CrashPoint.SINK_COMMITS_DONE,
    CrashPoint.COORDINATOR_SUBSUMED,
)
RECOVERY_POINTS = (
    CrashPoint.RECOVERY_ATTEMPT_WON,
    CrashPoint.RECOVERY_COMMITTED,
    CrashPoint.RECOVERY_SOURCES_RESET,
)


class Family(StrEnum):
    """Schedules of one kind."""

    INLINE = "inline"
    """The engine without Spark."""
    SPARK = "spark"
    """The same on Spark, which reads Kafka itself."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When the next fault strikes: this many checkpoints and seconds after the one before."""

    checkpoints: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """A variant of the job, and what happens to it when."""

    seed: int
    variant: Variant
    faults: tuple[tuple[Moment, Fault], ...]
    supervised: bool = False
    broken: str = ""
    """Which rules its sinks do not keep."""

    @staticmethod
    def from_seed(seed: int, family: Family = Family.INLINE) -> Schedule:
        """Make a schedule; the same seed makes the same one."""
        rng = random.Random(f"{family}-{seed}")
        supervised = rng.random() < 0.3
        on_spark = family is Family.SPARK
        makers = _OF_SPARK if on_spark else _OF_ALL
        if supervised:
            makers = tuple(maker for maker in makers if maker not in _UNSUPERVISED)
        # Each kind at most twice, so that a run holds several kinds.
        chosen = rng.sample(
            [*makers, *makers], rng.randint(2, 3) if on_spark else rng.randint(3, 6)
        )
        if on_spark:
            chosen.insert(rng.randint(0, len(chosen)), _kill_workers)
        faults = tuple((_moment(rng), maker(rng)) for maker in chosen)
        return Schedule(seed, _variant(rng, family), faults, supervised)

    def __str__(self) -> str:
        v = self.variant
        shape = f"{v.backend}/{v.parallelism} every {v.interval_ms} ms"
        shape += "" if v.two_phase else ", one phase"
        shape += ", unaligned" if v.unaligned else ""
        shape += ", supervised" if self.supervised else ""
        return f"{shape}; " + "; ".join(str(fault) for _, fault in self.faults)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a schedule went."""

    schedule: Schedule
    events: int
    seconds: float
    starts: int
    attempts: int
    complaint: str
    """What is wrong; empty if nothing is."""
    gave_up: tuple[str, ...] = ()
    unplayed: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether everything is there exactly once."""
        return not self.complaint

    def __str__(self) -> str:
        word = "ok  " if self.is_good else "FAIL"
        kind = "spark" if self.schedule.variant.spark else "inline"
        found = self.complaint or "0 lost, 0 duplicated, in order"
        ended = f"; ended by itself: {' | '.join(self.gave_up)}" if self.gave_up else ""
        unplayed = f"; not played: {' | '.join(self.unplayed)}" if self.unplayed else ""
        took = f"{self.seconds:5.1f} s, {self.starts} starts, {self.attempts} attempts"
        return (
            f"{word} {kind} seed {self.schedule.seed:>3} {took}: {self.schedule} "
            f"=> {self.events} orders, {found}{ended}{unplayed}"
        )


def play(schedule: Schedule, world: World, directory: Path, events: int = EVENTS) -> Outcome:
    """Run the job through its faults and to its end, then verify both of its ends."""
    began = time.monotonic()
    made = orders(schedule.seed, events)
    run: Run | None = None
    try:
        variant = world.place(schedule.variant, f"s{schedule.seed}", directory, stops(made))
        run = Run(world, variant, made, supervised=schedule.supervised, broken=schedule.broken)
        _play(schedule, run, events)
        found = look(
            world.broker.direct, variant.orders, variant.totals, variant.dsn, variant.table
        )
        complaint = str(verify_output(made, found))
    except Exception as error:
        # Whatever it was, it belongs into this schedule's line and not into the way of the others.
        complaint = str(error) if isinstance(error, AssertionError) else repr(error)
    finally:
        if run is not None:
            run.close()
    return Outcome(
        schedule,
        events,
        time.monotonic() - began,
        run.starts if run is not None else 0,
        run.journal.attempts_so_far if run is not None else 0,
        complaint,
        tuple(run.gave_up) if run is not None else (),
        tuple(run.unplayed) if run is not None else (),
    )


def _play(schedule: Schedule, run: Run, events: int) -> None:
    """Half of the orders are there before, the rest trickles in while things go wrong.

    Some are kept until the last fault has happened, so that the job cannot end before.
    """
    run.feed.write(events // 2)
    run.start()
    for moment, fault in schedule.faults:
        run.wait_for_checkpoints(moment.checkpoints)
        run.wait(moment.seconds)
        fault.strike(run)
    run.feed.release(events)
    run.feed.flush()
    run.wait_until(lambda: run.has_finished, "the end of the job", LONGEST_REST_S)


# -- shapes -------------------------------------------------------------------------------------


def _variant(rng: random.Random, family: Family) -> Variant:
    if family is Family.SPARK:
        return Variant(
            directory="",
            spark=True,
            backend=rng.choice(["hashmap", "hashmap", "rocksdb"]),
            interval_ms=rng.choice([500, 1_000]),
            max_batch=rng.choice([5_000, 10_000]),
            two_phase=rng.random() < 0.8,
            unaligned=rng.random() < 0.3,
            settings={
                "spark.master": "local[2]",
                "penstock.exchange": rng.choice(["channel", "shuffle"]),
            },
        )
    return Variant(
        directory="",
        parallelism=rng.choice([1, 2, 2, 3]),
        backend=rng.choice(["hashmap", "hashmap", "memory", "rocksdb"]),
        interval_ms=rng.choice([100, 200, 300, 600]),
        max_batch=rng.choice([1_000, 3_000, 6_000]),
        two_phase=rng.random() < 0.75,
        unaligned=rng.random() < 0.3,
        settings={"penstock.exchange": rng.choice(["channel", "shuffle"])},
    )


# -- faults -------------------------------------------------------------------------------------


def _moment(rng: random.Random) -> Moment:
    return Moment(rng.randint(1, 3), round(rng.uniform(0.0, 0.8), 3))


def _pause(rng: random.Random) -> float:
    return round(rng.choice([rng.uniform(0.0, 1.0), rng.uniform(1.0, 5.0)]), 1)


def _part(rng: random.Random) -> Part:
    return rng.choice(list(Part))


def _zombie(rng: random.Random) -> Fault:
    point = rng.choice([None, *COMMIT_POINTS])
    return Zombie(round(rng.uniform(0.0, 5.0), 1), point, rng.randint(1, 3))


def _kill_workers(rng: random.Random) -> Fault:
    """Only Spark has any, so every schedule on Spark has this."""
    return KillWorkers(tuple(round(rng.uniform(0.0, 2.0), 1) for _ in range(2)))


def _crash(rng: random.Random) -> Fault:
    return CrashAt(rng.choice(COMMIT_POINTS), rng.randint(1, 4))


def _crash_in_recovery(rng: random.Random) -> Fault:
    return CrashAt(rng.choice(RECOVERY_POINTS))


_BROKER_AND_DATABASE: tuple[MakeFault, ...] = (
    lambda rng: KillServer(Part.BROKER, _pause(rng), rng.random() < 0.3),
    lambda rng: KillServer(Part.DATABASE, _pause(rng), rng.random() < 0.3),
    lambda rng: StopServer(_part(rng), round(rng.uniform(6.0, 12.0), 1)),
    lambda rng: LostCommit(_part(rng), rng.choice(list(Loss)), rng.random() < 0.4),
    lambda rng: DiskFull(_pause(rng)),
)

_UNSUPERVISED: tuple[MakeFault, ...] = (
    _zombie,
    _crash,
    _crash_in_recovery,
    lambda rng: GoneAtCommit(_part(rng), _pause(rng)),
)
"""These start a driver that has something to expect."""

_OF_ALL: tuple[MakeFault, ...] = (
    lambda _: KillDriver(),
    *_BROKER_AND_DATABASE,
    *_UNSUPERVISED,
)

_OF_SPARK: tuple[MakeFault, ...] = (
    lambda rng: KillDriver(rng.random() < 0.5),
    *_BROKER_AND_DATABASE,
    _zombie,
    _crash,
)
