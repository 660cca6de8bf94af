"""What random schedules are made of: shapes of the job, and what may happen to each."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from penstock.crash_points import CrashPoint
from tests.crash.damage import KINDS
from tests.crash.faults import (
    CrashAt,
    CrashBehind,
    Damage,
    DamagedChannel,
    DiskFull,
    Fault,
    KilledSavepoint,
    KilledStop,
    KilledWorkers,
    KillLater,
    LostMicroBatches,
    OtherExchange,
    Rescale,
    StopAndRestore,
    StoreDown,
    Supervised,
    Zombie,
)
from tests.crash.file_faults import CHANGES, ChangedInput, FullFileSystem
from tests.crash.hostile_faults import (
    RETENTION,
    ClockJump,
    ConsumedStop,
    OtherConfiguration,
    RetainedCheckpoint,
    SameName,
    TakenOver,
)
from tests.crash.pipeline import EXCHANGE, Variant

MakeFault = Callable[[random.Random, Variant], Fault]


class Family(StrEnum):
    """Schedules of one kind."""

    UNITED = "united"
    """Two sources become one stream before the first keyed step; barriers align, mostly."""
    JOINED = "joined"
    """They are two inputs of one slow step; barriers pass in every way there is."""
    HOSTILE = "hostile"
    """Every guarantee, backend and sink equally often, in surroundings that interfere."""
    STORES = "stores"
    """Every backend, guarantee and way of barriers, with checkpoints and savepoints in S3."""
    SPARK = "spark"
    """The first two on Spark."""

    def variant(self, rng: random.Random) -> Variant:
        """Draw a shape of the job."""
        match self:
            case Family.UNITED:
                return _united(rng)
            case Family.JOINED:
                return _joined(rng)
            case Family.HOSTILE:
                return _hostile(rng)
            case Family.STORES:
                return _in_store(rng)
            case Family.SPARK:
                return _on_spark(rng)

    def faults(self, rng: random.Random, variant: Variant) -> tuple[Fault, ...]:
        """Draw what happens to it."""
        most = [1, 2] if self is Family.SPARK else [1, 2, 2, 3]
        makers = {
            Family.UNITED: _COMMON,
            Family.JOINED: (*_COMMON, *_OF_CHANNELS),
            Family.HOSTILE: (*_HOSTILE, *_COMMON[:1], *_of_files(variant)),
            Family.STORES: (*_COMMON, *_OF_STORES, *_OF_CHANNELS[:1], *_HOSTILE[:2]),
            Family.SPARK: _OF_SPARK,
        }[self]
        return tuple(rng.choice(makers)(rng, variant) for _ in range(rng.choice(most)))


# -- shapes -------------------------------------------------------------------------------------


def _united(rng: random.Random) -> Variant:
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
        failures=_failures(rng),
        max_batch=rng.choice([20, 60, 60, 200]),
        pause_ms=rng.choice([5, 12, 20]),
        lag_ms=rng.choice([0, 0, 30]),
    )


def _joined(rng: random.Random) -> Variant:
    backend = rng.choice(["hashmap", "hashmap", "hashmap", "memory", "memory", "rocksdb"])
    small = backend == "rocksdb"
    expires = rng.random() < 0.15
    variant = Variant(
        directory="",
        joins=rng.random() < 0.8,
        fast=300 if small else rng.choice([450, 600]),
        slow=30 if small else 60,
        parallelism=rng.choice([1, 2, 2, 3]),
        backend=backend,
        parquet=rng.random() < 0.2,
        rolls_at_checkpoint=rng.random() < 0.7,
        interval_ms=rng.choice([20, 30, 40, 60]),
        retained=rng.choice([1, 1, 2, 3]),
        incremental=rng.random() < 0.5,
        failures=_failures(rng),
        max_batch=rng.choice([20, 20, 60]),
        pause_ms=rng.choice([1, 5, 12]),
        lag_ms=rng.choice([0, 30, 60]),
        think_ms=rng.choice([0, 1, 2, 2]),
        settings={
            "execution.checkpointing.timeout": "60 ms" if expires else "10 min",
            "execution.checkpointing.tolerable-failed-checkpoints": "1000" if expires else "0",
            EXCHANGE: rng.choice(["channel", "channel", "shuffle"]),
        },
    )
    return _with_barriers(rng, variant)


def _hostile(rng: random.Random) -> Variant:
    drawn = _united(rng)
    backend = rng.choice(["hashmap", "memory", "rocksdb"])
    small = backend == "rocksdb"
    return msgspec.structs.replace(
        drawn,
        backend=backend,
        fast=360 if small else 600,
        slow=30 if small else 60,
        parquet=rng.random() < 0.5,
        mode=rng.choice(["EXACTLY_ONCE", "EXACTLY_ONCE", "AT_LEAST_ONCE", "AT_MOST_ONCE"]),
        files=rng.choice(["", "", "bounded", "watched"]),
        small=rng.choice(["", "", "", "checkpoints", "work", "output"]),
    )


def _on_spark(rng: random.Random) -> Variant:
    variant = Variant(
        directory="",
        spark=True,
        joins=rng.random() < 0.8,
        fast=900,
        slow=60,
        backend=rng.choice(["hashmap", "hashmap", "rocksdb"]),
        interval_ms=rng.choice([200, 400]),
        max_batch=rng.choice([30, 100]),
        retained=rng.choice([1, 2]),
        failures=_failures(rng),
        pause_ms=rng.choice([20, 100]),
        think_ms=rng.choice([1, 3]),
        settings={
            "spark.master": "local[4]",
            "penstock.source.poll-interval": "20 ms",
            EXCHANGE: rng.choice(["channel", "shuffle"]),
        },
    )
    return _with_barriers(rng, variant)


def _in_store(rng: random.Random) -> Variant:
    make = rng.choice([_united, _united, _joined, _hostile])
    # The input and the output are files, in any family.
    variant = msgspec.structs.replace(make(rng), in_store=True, files="", small="")
    # Drawn last, so that what the others draw stays the same.
    separate = rng.random() < 0.5
    moves = tuple(rng.sample(range(5, 90), rng.choice([0, 1, 3]))) if separate else ()
    return msgspec.structs.replace(variant, separate=separate, moves=moves)


def _with_barriers(rng: random.Random, variant: Variant) -> Variant:
    """Draw how barriers pass."""
    timeout, concurrent = rng.choice([5, 15, 40]), rng.choice([1, 2])
    unaligned = msgspec.structs.replace(variant, unaligned=True)
    switching = msgspec.structs.replace(unaligned, aligned_timeout_ms=timeout)
    aligned = msgspec.structs.replace(variant, concurrent=concurrent)
    at_least_once = msgspec.structs.replace(variant, mode="AT_LEAST_ONCE")
    return rng.choice([aligned, unaligned, unaligned, switching, switching, at_least_once])


def _failures(rng: random.Random) -> tuple[int, ...]:
    if rng.random() < 0.25:
        return tuple(rng.sample(range(50, 900), rng.choice([1, 2])))
    return ()


# -- faults -------------------------------------------------------------------------------------


def _seconds(rng: random.Random) -> float:
    return round(rng.uniform(0.0, 0.9), 3)


def _some_seconds(rng: random.Random, most: float, numbers: Sequence[int]) -> tuple[float, ...]:
    return tuple(round(rng.uniform(0.0, most), 3) for _ in range(rng.choice(numbers)))


def _crash_at(rng: random.Random, points: Sequence[CrashPoint], most: int) -> CrashAt:
    point, nth = rng.choice(points), rng.randint(1, most)
    # A process begins and ends once, most of the time.
    return CrashAt(point, 1 if point.startswith(("recovery", "job")) else nth)


def _disk_full(rng: random.Random) -> DiskFull:
    first = rng.randint(1, 80)
    return DiskFull(
        rng.choice(["fsync", "fsync", "link"]), first, first + rng.choice([0, 0, 1, 5, 10_000])
    )


_COMMON: tuple[MakeFault, ...] = (
    *[lambda rng, _: _crash_at(rng, list(CrashPoint), 6)] * 4,
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

_NOT_RECOVERING = [p for p in CrashPoint if not p.startswith(("recovery", "savepoint"))]


def _other_configuration(rng: random.Random) -> OtherConfiguration:
    changes: list[tuple[str, object]] = [
        ("retained", rng.choice([1, 3])),
        ("interval_ms", rng.choice([20, 60])),
        ("backend", rng.choice(["hashmap", "memory"])),
        ("incremental", rng.random() < 0.5),
        ("synchronous", rng.random() < 0.5),
        ("max_batch", rng.choice([20, 200])),
        ("concurrent", rng.choice([1, 2])),
    ]
    settings = [
        (RETENTION, rng.choice(["RETAIN_ON_CANCELLATION", "DELETE_ON_CANCELLATION"])),
        ("penstock.state.compact-after-deltas", rng.choice(["2", "20"])),
    ]
    return OtherConfiguration(
        _seconds(rng), tuple(rng.sample(changes, 2)), tuple(rng.sample(settings, 1))
    )


_HOSTILE: tuple[MakeFault, ...] = (
    *[
        lambda rng, _: TakenOver(
            rng.choice(_NOT_RECOVERING),
            rng.randint(1, 6),
            rng.uniform(0.0, 0.6),
            rng.uniform(0.0, 0.3),
        )
    ]
    * 2,
    lambda rng, _: Zombie(rng.choice(_NOT_RECOVERING), rng.randint(1, 6), rng.uniform(0.0, 1.0)),
    lambda rng, _: _other_configuration(rng),
    *[lambda rng, _: SameName(_seconds(rng), rng.random() < 0.5)] * 2,
    lambda rng, _: ConsumedStop(rng.random() < 0.3, rng.random() < 0.3),
    lambda _, __: RetainedCheckpoint(),
    lambda rng, _: ClockJump(rng.uniform(0.1, 0.6), rng.choice([-3600.0, -5.0, 5.0, 3600.0])),
    lambda rng, _: _disk_full(rng),
)


def _changed_input(rng: random.Random, variant: Variant) -> ChangedInput:
    # A name that comes back to a watched directory is a new file: that one may be read.
    kinds = CHANGES[:-1] if variant.files == "watched" else CHANGES
    return ChangedInput(
        rng.choice(kinds),
        rng.choice([0.0, round(rng.uniform(0.0, 0.1), 3)]),
        rng.random() < 0.25,
        rng.choice([None, None, round(rng.uniform(0.0, 0.1), 3)]),
    )


def _full_file_system(rng: random.Random, _: Variant) -> FullFileSystem:
    hold = rng.choice([None, round(rng.uniform(0.05, 0.5), 3)])
    return FullFileSystem(round(rng.uniform(0.0, 0.5), 3), hold, rng.random() < 0.3)


def _of_files(variant: Variant) -> tuple[MakeFault, ...]:
    """What only happens to jobs that read files, or that have a small file system."""
    changes: list[MakeFault] = [_changed_input] * 4 if variant.files else []
    full: list[MakeFault] = [_full_file_system] * 4 if variant.small else []
    return (*changes, *full)


_IN_FLIGHT = [CrashPoint.STAGE_IN_FLIGHT_RECORDED, CrashPoint.STAGE_IN_FLIGHT_KEPT]

_OF_CHANNELS: tuple[MakeFault, ...] = (
    *[lambda rng, v: _crash_at(rng, _IN_FLIGHT if v.unaligned else list(CrashPoint), 12)] * 2,
    lambda _, __: CrashAt(CrashPoint.RECOVERY_IN_FLIGHT_RESTORED),
    *[lambda rng, _: DamagedChannel(rng.choice(KINDS), rng.randrange(1 << 30))] * 2,
    lambda rng, _: OtherExchange(_seconds(rng)),
    lambda rng, _: LostMicroBatches(tuple(sorted(rng.sample(range(1, 60), 3)))),
    *[lambda rng, _: Supervised(_some_seconds(rng, 0.6, [1, 2, 3]))] * 2,
)

_OF_STORES: tuple[MakeFault, ...] = (
    *[
        lambda rng, _: StoreDown(
            rng.uniform(0.0, 0.4), rng.choice([0.0, rng.uniform(0.1, 3.0)]), rng.random() < 0.3
        )
    ]
    * 4,
)

_OF_SPARK: tuple[MakeFault, ...] = (
    *[lambda rng, _: KillLater(round(rng.uniform(2.0, 9.0), 2))] * 2,
    lambda rng, _: KilledWorkers(_some_seconds(rng, 3.0, [2, 3])),
    lambda rng, _: Supervised(tuple(4.0 + s for s in _some_seconds(rng, 4.0, [1, 2]))),
    lambda rng, v: _crash_at(rng, _IN_FLIGHT if v.unaligned else list(CrashPoint), 8),
    lambda rng, _: DamagedChannel(rng.choice(KINDS), rng.randrange(1 << 30)),
    lambda rng, v: StopAndRestore(3, v.backend),
)
