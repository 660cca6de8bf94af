"""The contenders of a run, the size of their input, and their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.job import FixedCostJob, KeyedJob
from benchmarks.workload import Workload

FEW_KEYS = 10_000
MANY_KEYS = 1_000_000


@dataclass(frozen=True)
class Size:
    """How much a contender gets; the first micro-batch counts here, though not in the time."""

    rows_per_batch: int
    batches: int


@dataclass(frozen=True)
class Entry:
    """A contender, where it is, and how much of the workload it can do in reasonable time."""

    name: str
    title: str
    where: str
    few_keys: Size
    many_keys: Size

    def size(self, keys: int) -> Size:
        return self.few_keys if keys < MANY_KEYS else self.many_keys


@dataclass(frozen=True)
class FixedCostEntry:
    """A chain for single records and where it is."""

    name: str
    title: str
    where: str


FULL = Size(500_000, 17)
SLOW = Size(100_000, 3)
PYFLINK = "pyflink"
PENSTOCK = "penstock"
PENSTOCK_ROCKSDB = "penstock-rocksdb"
PENSTOCK_BATCHES = "penstock-batches"
BASELINES = ("transform-with-state", "transform-with-state-per-key")

ENTRIES = (
    Entry(
        "transform-with-state",
        "transformWithState, per record",
        "transform_with_state:PER_RECORD",
        SLOW,
        SLOW,
    ),
    Entry(
        "transform-with-state-per-key",
        "transformWithState, per key",
        "transform_with_state:PER_KEY",
        Size(500_000, 3),
        SLOW,
    ),
    Entry("native", "groupBy().count(), JVM only", "native:CONTENDER", FULL, FULL),
    Entry("bare-loop", "shuffle + bare Python dict", "bare_loop:CONTENDER", FULL, FULL),
    Entry(PENSTOCK, "penstock, hashmap", "penstock_keyed:HASHMAP", FULL, FULL),
    Entry(PENSTOCK_ROCKSDB, "penstock, rocksdb", "penstock_keyed:ROCKSDB", FULL, FULL),
    Entry(
        PENSTOCK_BATCHES, "penstock, hashmap, process_batch", "penstock_batches:HASHMAP", FULL, FULL
    ),
    Entry(PYFLINK, "PyFlink, thread mode", "pyflink_keyed:CONTENDER", SLOW, SLOW),
)

FIXED_COSTS = (
    FixedCostEntry(
        "fixed-structured",
        "streaming query, Python dict",
        "fixed_cost:STRUCTURED",
    ),
    FixedCostEntry(
        "fixed-stateful",
        "streaming query, transformWithState",
        "fixed_cost_stateful:CONTENDER",
    ),
    FixedCostEntry(
        "fixed-penstock",
        "penstock",
        "fixed_cost_penstock:CONTENDER",
    ),
)

NAMES = tuple(entry.name for entry in (*ENTRIES, *FIXED_COSTS))


@dataclass(frozen=True)
class Options:
    """What the command line decides."""

    keys: Sequence[int]
    rounds: int
    records: int
    warm_up: int
    scale: float
    parallelism: int
    cache: str
    chosen: Sequence[str]


@dataclass(frozen=True)
class KeyedRun:
    """One timed run of one contender."""

    entry: Entry
    keys: int
    round: int
    job: KeyedJob

    @property
    def label(self) -> str:
        return f"{self.entry.name}-k{self.keys}-r{self.round}"


def keyed_runs(options: Options) -> Iterator[KeyedRun]:
    """Alternate the engines within a round, so that a busy moment does not hit one alone."""
    for number in range(1, options.rounds + 1):
        for keys in options.keys:
            for entry in ENTRIES:
                if entry.name in options.chosen:
                    yield KeyedRun(entry, keys, number, _job(entry, keys, options))


def fixed_cost_jobs(options: Options) -> Iterator[tuple[FixedCostEntry, FixedCostJob]]:
    for entry in FIXED_COSTS:
        if entry.name in options.chosen:
            yield entry, FixedCostJob(entry.where, options.records, options.warm_up)


def _job(entry: Entry, keys: int, options: Options) -> KeyedJob:
    size = entry.size(keys)
    rows = max(100, round(size.rows_per_batch * options.scale))
    return KeyedJob(
        contender=entry.where,
        check=Workload(500, 5_000, 2, options.parallelism, options.cache),
        workload=Workload(keys, rows, size.batches, options.parallelism, options.cache),
    )
