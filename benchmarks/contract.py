"""The interface of every contender, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.workload import Workload


class WrongResultError(Exception):
    """A contender's answer differs from a plain count of the same files."""


@dataclass(frozen=True)
class Answer:
    """What a contender said about the check workload: the highest count per key, rows emitted."""

    counts: dict[str, int]
    emitted: int


@dataclass(frozen=True)
class Measurement:
    """One timed run in its steady state: the first micro-batch is left out."""

    rows: int
    seconds: float
    micro_batches: int
    peak_worker_memory_mb: float | None = None
    peak_jvm_memory_mb: float | None = None
    extra: dict[str, float] = field(default_factory=dict)

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds


class Contender(Protocol):
    """One way to count per key and hand on the counts."""

    @property
    def emits_every_update(self) -> bool:
        """Whether it hands on one count per record, or one per key and micro-batch."""

    def check(self, workload: Workload) -> Answer:
        """Run a small workload and bring its result home."""

    def measure(self, workload: Workload) -> Measurement:
        """Run the workload, throw its result away, say how fast it went."""


@dataclass(frozen=True)
class FixedCost:
    """What one record costs on its way through source, exchange and keyed step."""

    end_to_end_ms: Sequence[float]
    micro_batch_ms: Sequence[float]


class FixedCostContender(Protocol):
    """One way to run source, exchange and keyed step for a single record at a time."""

    def measure(self, records: int, warm_up: int) -> FixedCost:
        """Make one record available, wait for its result, and so on."""


def verify(answer: Answer, workload: Workload, *, every_update: bool) -> None:
    """Compare an answer with a plain count of the same files."""
    expected = workload.count()
    if answer.counts != expected:
        wrong = sum(1 for key in expected if answer.counts.get(key) != expected[key])
        msg = (
            f"{wrong} of {len(expected)} keys are wrong: counted {sum(answer.counts.values())} rows"
            f" of {len(answer.counts)} keys; expected {workload.rows} of {len(expected)}"
        )
        raise WrongResultError(msg)
    if every_update and answer.emitted != workload.rows:
        msg = f"emitted {answer.emitted} updates for {workload.rows} rows"
        raise WrongResultError(msg)


def verify_rows(processed: int, workload: Workload) -> None:
    """Refuse a time that was not taken over the whole workload."""
    if processed != workload.rows:
        msg = f"processed {processed} rows of {workload.rows}"
        raise WrongResultError(msg)
