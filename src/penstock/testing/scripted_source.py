"""A source that follows a script: bursts of records, pauses, idleness, an end."""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

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
from penstock.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation


@dataclass(frozen=True, slots=True)
class Burst:
    """Records that are all available at once; the job reads them as fast as it can."""

    records: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Pause:
    """No records for some seconds, after the job has planned everything before."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Idle:
    """No more records, but no end either: the last step of a split that stays open."""


Step = Burst | Pause | Idle
Script = Sequence[Step]


class ScriptedSource(Source):
    """Follows one script per split; ends when all splits have ended, unless one stays idle.

    The position of a split is the number of its records that were planned; the records after a
    position are always the same. A source that resumes at a position skips the pauses before it.
    Splits are assigned to subtasks round-robin in the order of `scripts`, so that each split is
    read in order.
    """

    def __init__(
        self,
        scripts: Mapping[str, Script] | Script,
        type_info: TypeInformation | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        splits = scripts if isinstance(scripts, Mapping) else {"0": scripts}
        self._scripts = {split: tuple(script) for split, script in splits.items()}
        for split, script in self._scripts.items():
            if any(isinstance(step, Idle) for step in script[:-1]):
                message = f"split {split!r} has steps after Idle(), which never ends"
                raise ValueError(message)
        self._type_info = type_info
        self._clock = clock

    def __getstate__(self) -> dict[str, Any]:
        # A manual clock belongs to the test; tasks only read ranges.
        return {**self.__dict__, "_clock": None}

    def boundedness(self) -> Boundedness:
        stays = any(isinstance(s, Idle) for script in self._scripts.values() for s in script)
        return Boundedness.CONTINUOUS_UNBOUNDED if stays else Boundedness.BOUNDED

    def type_info(self) -> TypeInformation | None:
        return self._type_info

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        clock: Callable[[], float] = time.monotonic
        if self._clock is not None:
            clock = self._clock
            self._clock.when_moved(context.wake)
        players = {split: _Player(script, clock) for split, script in self._scripts.items()}
        return _Enumerator(players, context.parallelism, moves_by_itself=self._clock is None)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        bursts = [s.records for s in self._scripts[split_range.split] if isinstance(s, Burst)]
        ends = list(accumulate(map(len, bursts)))
        position = split_range.start
        while position < split_range.end:
            index = bisect_right(ends, position)
            first = ends[index] - len(bursts[index])
            stop = min(split_range.end, ends[index], position + CHUNK_RECORDS)
            yield list(bursts[index][position - first : stop - first])
            position = stop


class _Player:
    """The progress of one split in its script."""

    def __init__(self, script: Script, clock: Callable[[], float]) -> None:
        self._script = script
        self._clock = clock
        self._step = 0
        self._left = 0
        self._resumes: float | None = None
        self.position = 0

    def start(self, position: int) -> None:
        """Move to a position, without the pauses before it."""
        self._enter(0)
        while self.position < position:
            if self.has_ended or isinstance(self._script[self._step], Idle):
                message = f"the script has no record {position}: it ends at {self.position}"
                raise ValueError(message)
            self.take(min(self._left, position - self.position))

    def available(self) -> int:
        """Return how many records can be planned now."""
        while (seconds := self.seconds_to_wait()) == 0 and self._left == 0 and not self.has_ended:
            self._enter(self._step + 1)
        return self._left if seconds == 0 else 0

    def take(self, records: int) -> tuple[int, int]:
        """Move past some of the available records; return their range."""
        start = self.position
        self.position += records
        self._left -= records
        if self._left == 0:
            self._enter(self._step + 1)
        return start, self.position

    def seconds_to_wait(self) -> float | None:
        """Return when there may be more; None if the script has ended or is idle."""
        if self.has_ended or isinstance(self._script[self._step], Idle):
            return None
        if self._resumes is None:
            return 0.0
        return max(0.0, self._resumes - self._clock())

    @property
    def has_ended(self) -> bool:
        """Whether the script has ended."""
        return self._step == len(self._script)

    def _enter(self, step: int) -> None:
        self._step, self._left, self._resumes = step, 0, None
        if self.has_ended:
            return
        match self._script[step]:
            case Burst(records):
                self._left = len(records)
                if not records:
                    self._enter(step + 1)
            case Pause(seconds):
                self._resumes = self._clock() + seconds


class _Enumerator(SourceEnumerator):
    def __init__(
        self, players: Mapping[str, _Player], parallelism: int, *, moves_by_itself: bool
    ) -> None:
        self._players = players
        self._parallelism = parallelism
        self._moves_by_itself = moves_by_itself

    def start(self, positions: Mapping[str, int]) -> None:
        for split, player in self._players.items():
            player.start(positions.get(split, 0))

    def plan(self, max_records: int) -> ReadPlan:
        plan: ReadPlan = [[] for _ in range(self._parallelism)]
        left = max_records
        # The split with the fewest planned records first, so that no split waits for another's end.
        for split, player in sorted(self._players.items(), key=lambda item: item[1].position):
            records = min(player.available(), left)
            if records:
                left -= records
                subtask = list(self._players).index(split) % self._parallelism
                plan[subtask].append(SplitRange(split, *player.take(records)))
        return plan if left < max_records else []

    def positions(self) -> dict[str, int]:
        return {split: player.position for split, player in self._players.items()}

    def finished(self) -> bool:
        return all(player.has_ended for player in self._players.values())

    def next_poll(self) -> float | None:
        waits = [player.seconds_to_wait() for player in self._players.values()]
        known = [seconds for seconds in waits if seconds is not None]
        if not known or (min(known) > 0 and not self._moves_by_itself):
            return None
        return min(known)
