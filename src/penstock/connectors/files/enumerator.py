"""Enumerator of a file source: lists files and divides them into ranges of bytes."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.connectors.contracts import source
from penstock.connectors.files.listing import list_files
from penstock.connectors.formats.reader_format import ReaderFormat
from penstock.errors import MissingPathError

_log = logging.getLogger(__name__)

# A smaller range costs more to plan than to read.
_MIN_SPLIT_BYTES = 64 * 1024
_GUESSED_BYTES_PER_RECORD = 64.0
# The rest of a file is added to a micro-batch if it is at most this fraction of it: on its own, it
# would cost as much as a full micro-batch.
_REST_FRACTION = 8


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files a source reads: where, in which format, and how often to look for new ones."""

    roots: tuple[Path, ...]
    reader_format: ReaderFormat
    splits_files: bool = True
    discovery_interval: float | None = None

    def is_splittable(self, path: str) -> bool:
        """Whether a file may be read in several ranges."""
        return self.splits_files and self.reader_format.splittable(Path(path))


@dataclass(slots=True)
class _File:
    path: str
    size: int
    next: int
    splittable: bool
    block_starts: Sequence[int] | None = None


MAX_BYTES = 256 << 20
"""Maximum that one subtask reads in one micro-batch, however long the records are."""


class FileEnumerator(source.SourceEnumerator):
    """Plans files in the order of their paths, one after the other.

    A position is the next byte of a file. The position of a finished file is the complement
    ``~size`` of its size (a negative number): finished files may be removed, and a restored job
    must distinguish them from files that disappeared before they were read.
    """

    def __init__(self, files: FileSet, context: source.EnumeratorContext) -> None:
        self._files = files
        self._parallelism = context.parallelism
        self._clock = context.clock
        self._positions: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._waiting: deque[_File] = deque()
        self._discovered_at = 0.0
        self._bytes_per_record: float | None = None

    def start(self, positions: Mapping[str, int]) -> None:
        listed = list_files(self._files.roots)
        self._discovered_at = self._clock()
        for path, position in positions.items():
            self._positions[path] = position
            if position < 0:
                self._sizes[path] = ~position
            elif path in listed:
                self._add(path, listed[path], position)
            else:
                raise MissingPathError(path)
        if self._is_continuous or not positions:
            self._add_new(listed)

    def plan(self, max_records: int) -> source.ReadPlan:
        if self._discovery_due() == 0.0:
            self._discovered_at = self._clock()
            self._add_new(list_files(self._files.roots))
        wanted = min(int(max_records * self._estimate()), MAX_BYTES * self._parallelism)
        pieces = self._next_ranges(max(1, wanted))
        return spread(pieces, self._parallelism) if pieces else []

    def positions(self) -> dict[str, int]:
        return dict(self._positions)

    def finished(self) -> bool:
        return not self._is_continuous and not self._waiting

    def is_finished(self, split: str) -> bool:
        return self._positions.get(split, 0) < 0

    def observe(self, records: int, ranges: Sequence[source.SplitRange]) -> None:
        size = sum(part.end - part.start for part in ranges)
        # No record starts in these ranges: records are longer than estimated.
        seen = size / records if records else 2 * self._estimate()
        self._bytes_per_record = (self._estimate() + seen) / 2

    def next_poll(self) -> float | None:
        return 0.0 if self._waiting else self._discovery_due()

    @property
    def _is_continuous(self) -> bool:
        return self._files.discovery_interval is not None

    def _discovery_due(self) -> float | None:
        interval = self._files.discovery_interval
        if interval is None:
            return None
        return max(0.0, self._discovered_at + interval - self._clock())

    def _add_new(self, listed: Mapping[str, int]) -> None:
        for path, size in listed.items():
            if path not in self._sizes:
                self._add(path, size, 0)
            elif size != self._sizes[path]:
                _log.warning(
                    "File %s changed from %d to %d bytes after it was listed. Files must "
                    "not change; this one is not read again.",
                    path,
                    self._sizes[path],
                    size,
                )
                self._sizes[path] = size

    def _add(self, path: str, size: int, position: int) -> None:
        self._sizes[path] = size
        if position < size:
            self._positions[path] = position
            splittable = self._files.is_splittable(path)
            self._waiting.append(_File(path, size, position, splittable))
        else:
            self._positions[path] = ~size

    def _next_ranges(self, budget: int) -> list[tuple[source.SplitRange, bool]]:
        pieces: list[tuple[source.SplitRange, bool]] = []
        rest = budget // _REST_FRACTION
        while budget > 0 and self._waiting:
            file = self._waiting[0]
            end = self._range_end(file, budget, rest)
            pieces.append((source.SplitRange(file.path, file.next, end), file.splittable))
            budget -= end - file.next
            file.next = end
            if end < file.size:
                self._positions[file.path] = end
            else:
                self._positions[file.path] = ~file.size
                self._waiting.popleft()
        return pieces

    def _range_end(self, file: _File, budget: int, rest: int) -> int:
        wanted = file.next + budget
        if not file.splittable or wanted + rest >= file.size:
            return file.size
        if file.block_starts is None:
            starts = self._files.reader_format.block_starts(Path(file.path))
            if starts is None:
                return wanted
            file.block_starts = starts
        following = bisect_left(file.block_starts, wanted)
        return file.block_starts[following] if following < len(file.block_starts) else file.size

    def _estimate(self) -> float:
        if self._bytes_per_record is None:
            splittable = (file.path for file in self._waiting if file.splittable)
            sample = next(splittable, None)
            if sample is None:
                return _GUESSED_BYTES_PER_RECORD
            self._bytes_per_record = self._files.reader_format.bytes_per_record(Path(sample))
        return self._bytes_per_record


def spread(pieces: Sequence[tuple[source.SplitRange, bool]], parallelism: int) -> source.ReadPlan:
    """Divide ranges of files evenly among the subtasks, in order.

    Ranges that are small or not splittable (the flag) stay whole, and go to the subtask of their
    middle.
    """
    total = sum(part.end - part.start for part, _ in pieces)
    cuts = [total * subtask // parallelism for subtask in range(parallelism + 1)]
    plan: source.ReadPlan = [[] for _ in range(parallelism)]
    done = 0
    for part, splittable in pieces:
        length = part.end - part.start
        if not splittable or length <= _MIN_SPLIT_BYTES:
            plan[(2 * done + length) * parallelism // (2 * total)].append(part)
        else:
            shift = part.start - done
            for subtask in range(parallelism):
                low = max(part.start, cuts[subtask] + shift)
                high = min(part.end, cuts[subtask + 1] + shift)
                if low < high:
                    plan[subtask].append(source.SplitRange(part.split, low, high))
        done += length
    return plan
