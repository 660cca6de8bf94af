"""A source of keys that gives out no more than the benchmark lets through.

Its first `keys` records are all keys, once each; every further `keys` records are all of them
again. So any stretch of n records touches n different keys, spread over all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from penstock.common import Types
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.contracts.source import (
    CHUNK_RECORDS,
    Boundedness,
    Chunk,
    EnumeratorContext,
    ReadPlan,
    Source,
    SourceEnumerator,
    SplitRange,
)
from penstock.connectors.indexed_sources import SINGLE_SPLIT, divide_range

# Odd, and no multiple of a number of keys anyone would choose: a step that visits all of them.
STRIDE = 2_654_435_761


class SourceLostError(Exception):
    """Raised by a source that should fail."""


class Gate:
    """Lives on the driver, in the process that measures; any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake: Callable[[], None] = lambda: None
        self._limit = 0
        self._at_once = 1
        self._planned = 0
        self._fails = False

    @property
    def planned(self) -> int:
        """How many records were given out since the job's beginning."""
        return self._planned

    def let_through(self, records: int, at_once: int) -> int:
        """Allow more records, and how many per micro-batch; return the position after them."""
        with self._lock:
            self._limit = max(self._limit, self._planned) + records
            self._at_once = at_once
            limit = self._limit
        self._wake()
        return limit

    def fail_once(self) -> None:
        """Let the source fail at its next plan."""
        self._fails = True
        self._wake()

    def attach(self, position: int, wake: Callable[[], None]) -> None:
        with self._lock:
            self._planned = position
            self._wake = wake

    def take(self, most: int) -> tuple[int, int]:
        with self._lock:
            if self._fails:
                self._fails = False
                msg = "the source should fail here"
                raise SourceLostError(msg)
            start = self._planned
            end = max(start, min(start + min(most, self._at_once), self._limit))
            self._planned = end
            return start, end


_gates: dict[str, Gate] = {}


def gate_named(name: str) -> Gate:
    """The gate of a source; the source itself travels to tasks and cannot hold it."""
    return _gates.setdefault(name, Gate())


class GatedSource(Source):
    """Keys from 0 up to `keys`, again and again, as far as the gate is open."""

    def __init__(self, keys: int, gate: str) -> None:
        self._keys = keys
        self._gate = gate

    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def type_info(self) -> TypeInformation | None:
        return Types.LONG()

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        return _GatedEnumerator(gate_named(self._gate), context)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        for start in range(split_range.start, split_range.end, CHUNK_RECORDS):
            end = min(start + CHUNK_RECORDS, split_range.end)
            within = np.arange(start, end, dtype=np.int64) % self._keys
            yield pa.array(within * (STRIDE % self._keys) % self._keys)


class _GatedEnumerator(SourceEnumerator):
    def __init__(self, gate: Gate, context: EnumeratorContext) -> None:
        self._gate = gate
        self._context = context

    def start(self, positions: Mapping[str, int]) -> None:
        self._gate.attach(positions.get(SINGLE_SPLIT, 0), self._context.wake)

    def plan(self, max_records: int) -> ReadPlan:
        start, end = self._gate.take(max_records)
        if start == end:
            return []
        return divide_range(SINGLE_SPLIT, start, end, self._context.parallelism)

    def positions(self) -> dict[str, int]:
        return {SINGLE_SPLIT: self._gate.planned}

    def finished(self) -> bool:
        return False

    def next_poll(self) -> float | None:
        return None
