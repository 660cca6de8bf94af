"""Which engine runs which query, how often and on what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.job import TaskJob
from benchmarks.nexmark.contract import Timed
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.reference import ANSWERS

QUERIES = tuple(ANSWERS)
CHECK_EVENTS = 40_000
CHECK_RATE = 1_000
"""Slow enough for forty seconds of event time."""
PARTS_OF_CHECK = 10


@dataclass(frozen=True)
class Engine:
    """An engine, its location, and its options besides the query and its events."""

    name: str
    title: str
    where: str
    more: dict[str, str] = field(default_factory=dict)


HASHMAP = Engine(
    "penstock-hashmap", "penstock, hashmap", "nexmark.on_penstock:run", {"backend": "hashmap"}
)
ROCKSDB = Engine(
    "penstock-rocksdb", "penstock, rocksdb", "nexmark.on_penstock:run", {"backend": "rocksdb"}
)
PYFLINK = Engine("pyflink", "PyFlink, thread mode", "nexmark.on_pyflink:run")
SPARK = Engine("spark", "Spark's own operators", "nexmark.on_spark:run")
ENGINES = {engine.name: engine for engine in (HASHMAP, ROCKSDB, PYFLINK, SPARK)}


@dataclass(frozen=True)
class Options:
    """What the command line decides."""

    queries: Sequence[str]
    engines: Sequence[str]
    rounds: int
    events: int
    events_per_batch: int
    rate: int
    parallelism: int
    cache: str

    @property
    def check(self) -> Events:
        return Events(CHECK_EVENTS, CHECK_EVENTS // PARTS_OF_CHECK, CHECK_RATE, self.cache)

    @property
    def workload(self) -> Events:
        """Micro-batches are a part for every subtask."""
        per_part = max(1, self.events_per_batch // self.parallelism)
        return Events(self.events, per_part, self.rate, self.cache)


@dataclass(frozen=True)
class Request:
    """One run that is to be done."""

    query: str
    engine: Engine
    round: int
    job: TaskJob

    @property
    def name(self) -> str:
        return f"nexmark-{self.query}-{self.engine.name}-r{self.round}"


@dataclass(frozen=True)
class Run:
    """One run that was done."""

    query: str
    engine: str
    round: int
    timed: Timed

    @property
    def events_per_second(self) -> float:
        return self.timed["events"] / self.timed["seconds"]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "events_per_second": self.events_per_second}


def requests(options: Options) -> Iterator[Request]:
    """Alternate the engines within a round, so that a busy moment does not hit one alone."""
    given = {
        "check": asdict(options.check),
        "events": asdict(options.workload),
        "parallelism": options.parallelism,
    }
    for number in range(1, options.rounds + 1):
        for query in options.queries:
            for name in options.engines:
                engine = ENGINES[name]
                job = TaskJob(engine.where, {"query": query, **given, **engine.more})
                yield Request(query, engine, number, job)
