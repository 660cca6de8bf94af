"""A source whose records are due by a schedule, also while no driver runs.

The schedule is a file: from a time on, so many records a second become available, with keys drawn
evenly from so many. A position determines its key, so every read returns the same records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
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

_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Segment:
    """A stretch of the schedule, which lasts until the next one begins."""

    start: float
    rate: float
    keys: int


@dataclass(frozen=True)
class Schedule:
    """How many records are due when."""

    segments: Sequence[Segment]

    @classmethod
    def read(cls, path: Path) -> Schedule:
        return cls([Segment(**one) for one in json.loads(path.read_text())])

    def write(self, path: Path) -> None:
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps([asdict(one) for one in self.segments]))
        draft.rename(path)

    def followed_by(self, segment: Segment) -> Schedule:
        return Schedule([*self.segments, segment])

    def due(self, now: float) -> int:
        """How many records there are at a time."""
        return self._starts(now)[-1]

    def time_of(self, position: int) -> float:
        """When the record at a position is due."""
        starts = self._starts(float("inf"))
        index = max(i for i in range(len(self.segments)) if starts[i] <= position)
        segment = self.segments[index]
        return segment.start + (position - starts[index]) / segment.rate

    def keys(self, start: int, end: int) -> npt.NDArray[np.int64]:
        """The keys of some positions."""
        starts = self._starts(float("inf"))
        positions = np.arange(start, end, dtype=np.uint64)
        index = np.searchsorted(np.asarray(starts[1:-1]), positions.astype(np.int64), side="right")
        counts = np.asarray([segment.keys for segment in self.segments], dtype=np.uint64)[index]
        mixed = positions * _MIX
        mixed ^= mixed >> np.uint64(29)
        mixed *= _MIX
        mixed ^= mixed >> np.uint64(32)
        return (mixed % counts).astype(np.int64)

    def _starts(self, now: float) -> list[int]:
        """The first position of each segment, and the one that is due now."""
        starts = [0]
        for number, segment in enumerate(self.segments):
            following = self.segments[number + 1 : number + 2]
            until = min(now, following[0].start) if following else now
            if until == float("inf"):
                break
            starts.append(starts[-1] + int(max(0.0, until - segment.start) * segment.rate))
        return starts if len(starts) > len(self.segments) else [*starts, 2**62]


class ScheduledSource(Source):
    """Keys in the order of the schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def type_info(self) -> TypeInformation | None:
        return Types.LONG()

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        return _ScheduledEnumerator(self._schedule, context)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        for start in range(split_range.start, split_range.end, CHUNK_RECORDS):
            end = min(start + CHUNK_RECORDS, split_range.end)
            yield pa.array(self._schedule.keys(start, end))


class _ScheduledEnumerator(SourceEnumerator):
    def __init__(self, schedule: Schedule, context: EnumeratorContext) -> None:
        self._schedule = schedule
        self._parallelism = context.parallelism
        self._clock: Callable[[], float] = context.clock
        self._next = 0

    def start(self, positions: Mapping[str, int]) -> None:
        self._next = positions.get(SINGLE_SPLIT, 0)

    def plan(self, max_records: int) -> ReadPlan:
        start, end = self._next, min(self._next + max_records, self._schedule.due(self._clock()))
        if start >= end:
            return []
        self._next = end
        return divide_range(SINGLE_SPLIT, start, end, self._parallelism)

    def positions(self) -> dict[str, int]:
        return {SINGLE_SPLIT: self._next}

    def finished(self) -> bool:
        return False

    def next_poll(self) -> float | None:
        return max(0.0, self._schedule.time_of(self._next) - self._clock())
