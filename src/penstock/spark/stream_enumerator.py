"""The driver's half of a streaming query as a source: its batches, its files, and the cut.

The query runs in a directory of this attempt's own. A batch of it is logged in Arrow files before
the query counts it, and may be planned only after: so what is planned is never more than a seed
of the query knows. At a cut the query's files as of its last counted batch, and the rows that are
logged and not planned yet, get second names in a directory of the cut's. The checkpoint names
these files, a savepoint gets copies. A restored attempt begins with them, and what came after
the cut is made again.
"""
# ruff: noqa: D102 - the contract documents the methods of an enumerator

from __future__ import annotations

import shutil
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame

from penstock.connectors.durable import link_or_copy, make_directory, sync_directory
from penstock.connectors.kept_files import KeptFile, KeptFiles
from penstock.connectors.source import EnumeratorContext, Plan, SourceEnumerator
from penstock.ids import is_no_later
from penstock.spark.query_files import NONE_COMMITTED, QueryFiles, last_committed, seed
from penstock.spark.stream_log import LoggedFile, ranges_of, write_batch
from penstock.spark.stream_query import StreamQuery

_ROWS = "rows"
_SNAPSHOTS = "snapshots"
_QUERY = "query"
_LOG = "log"
_UNFINISHED = ".part"
_LARGEST_BACKLOG = 1_000_000
"""Rows that wait; beyond it the query's next batch does."""
_COMMIT_SECONDS = 0.02
"""How soon to look again whether Spark counts a batch that is logged."""


class _Memory(msgspec.Struct, frozen=True):
    """What a checkpoint says of a query."""

    committed: int
    """The batch behind which the query is."""
    files: list[LoggedFile]
    """Those with rows not read yet."""
    end: int
    """The number of the row to come."""
    has_ended: bool


_NOTHING = _Memory(NONE_COMMITTED, [], 0, False)


class StreamEnumerator(SourceEnumerator):
    """Runs the query and plans its rows; positions count rows."""

    def __init__(
        self, df: DataFrame, trigger: dict[str, object], context: EnumeratorContext
    ) -> None:
        self._df = df
        self._trigger = trigger
        self._context = context
        self._own = context.work_dir / context.attempt
        self._log_dir = self._own / _LOG
        self._query_dir = self._own / _QUERY
        self._memory = _NOTHING
        self._query: StreamQuery | None = None
        self._kept = QueryFiles(self._query_dir)
        self._next = 0
        self._end = 0
        self._committed = NONE_COMMITTED
        self._files: deque[LoggedFile] = deque()
        """Of batches that count, as far as they are needed."""
        self._lock = threading.Lock()
        self._pending: deque[tuple[int, list[LoggedFile]]] = deque()
        """Batches that are logged and that Spark may not count yet."""
        self._logged = 0
        self._snapshots = 0
        self._kept_dir: Path | None = None
        """Where what it begins with lies."""
        self._last: tuple[tuple[int, int, bool], bytes, KeptFiles] | None = None

    def recall(self, memory: bytes) -> None:
        self._memory = msgspec.msgpack.decode(memory, type=_Memory)

    def recall_files(self, directory: Path) -> None:
        self._kept_dir = directory

    def start(self, positions: Mapping[str, int]) -> None:
        begun = self._memory
        assert begun is _NOTHING or self._kept_dir is not None
        self._next = positions.get(_ROWS, 0)
        self._end = self._logged = begun.end
        self._committed = begun.committed
        self._files.extend(begun.files)
        self._remove_older()
        if self._kept_dir is not None:
            self._take_over(self._kept_dir, begun)
        if not begun.has_ended:
            make_directory(self._own)
            query = StreamQuery(self._df, self._query_dir, self._trigger, self._log_batch)
            self._query = query
            query.start(self._context.wake)

    def plan(self, max_records: int) -> Plan:
        # In this order: an error is told when there is nothing else to do.
        error = None if self._query is None else self._query.error
        self._settle()
        if not self._context.checkpointed:
            # Nobody will come back: what was planned before is published.
            self._forget_rows(self._next)
        end = min(self._end, self._next + max_records)
        if end > self._next:
            start, self._next = self._next, end
            self._hold_back()
            needed = [f for f in self._files if f.overlaps(start, end)]
            return ranges_of(needed, self._log_dir, start, end, self._context.parallelism)
        if error is not None:
            raise error
        return []

    def positions(self) -> dict[str, int]:
        return {_ROWS: self._next}

    def memory(self) -> bytes:
        if self._query is None:
            return self._remembered(has_ended=True)
        # In this order: what has ended has counted all its batches.
        has_ended = self._query.has_ended
        with self._query.held():
            self._settle()
            return self._remembered(has_ended)

    def kept_files(self) -> KeptFiles | None:
        return None if self._last is None else self._last[2]

    def finished(self) -> bool:
        has_ended = self._query is None or self._query.has_ended
        if has_ended:
            self._settle()
        return has_ended and self._next >= self._end

    def next_poll(self) -> float | None:
        if self._next < self._end:
            return 0.0
        with self._lock:
            return _COMMIT_SECONDS if self._pending else None

    def release(self, positions: Mapping[str, int]) -> None:
        if _ROWS not in positions:
            return
        lowest = positions[_ROWS]
        self._forget_rows(lowest)
        for directory in self._snapshot_dirs():
            position, attempt = directory.name.split("-")[:2]
            if int(position) < lowest and is_no_later(attempt, self._context.attempt):
                shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        if self._query is not None:
            self._query.stop()

    # -- the query's thread ---------------------------------------------------------------------

    def _log_batch(self, df: DataFrame, batch: int) -> None:
        files = write_batch(df, self._log_dir, batch, self._logged)
        with self._lock:
            self._logged += sum(f.rows for f in files)
            self._pending.append((batch, files))
        self._hold_back()
        self._context.wake()

    def _hold_back(self) -> None:
        assert self._query is not None or not self._pending
        if self._query is not None:
            self._query.set_full(self._logged - self._next > _LARGEST_BACKLOG)

    # -- the loop's thread ----------------------------------------------------------------------

    def _settle(self) -> None:
        """Take over what Spark counts by now."""
        with self._lock:
            if not self._pending:
                return
        committed = last_committed(self._query_dir)
        with self._lock:
            while self._pending and self._pending[0][0] <= committed:
                batch, files = self._pending.popleft()
                self._files.extend(files)
                self._end += sum(f.rows for f in files)
                self._committed = batch

    def _remembered(self, has_ended: bool) -> bytes:
        state = self._next, self._committed, has_ended
        if self._last is not None and self._last[0] == state:
            return self._last[1]
        needed = [f for f in self._files if f.end > self._next]
        self._snapshots += 1
        name = f"{self._next}-{self._context.attempt}-{self._snapshots}"
        final = self._context.work_dir / _SNAPSHOTS / name
        unfinished = final.with_name(f"{name}{_UNFINISHED}")
        shutil.rmtree(unfinished, ignore_errors=True)
        make_directory(unfinished)
        of_query = self._kept.keep(unfinished / _QUERY, self._committed)
        (unfinished / _LOG).mkdir()
        for file in needed:
            link_or_copy(self._log_dir / file.name, unfinished / _LOG / file.name)
        sync_directory(unfinished / _LOG)
        sync_directory(unfinished)
        unfinished.rename(final)
        sync_directory(final.parent)
        memory = msgspec.msgpack.encode(_Memory(self._committed, needed, self._end, has_ended))
        files = [KeptFile(f"{_QUERY}/{f.name}", f.size, f.crc) for f in of_query]
        files += [KeptFile(f"{_LOG}/{f.name}", f.size, f.crc) for f in needed]
        self._last = state, memory, KeptFiles(str(final), files)
        return memory

    def _take_over(self, kept: Path, begun: _Memory) -> None:
        seed(kept / _QUERY, self._query_dir)
        self._log_dir.mkdir()
        for file in begun.files:
            link_or_copy(kept / _LOG / file.name, self._log_dir / file.name)

    def _forget_rows(self, below: int) -> None:
        while self._files and self._files[0].end <= below:
            (self._log_dir / self._files.popleft().name).unlink(missing_ok=True)

    def _remove_older(self) -> None:
        """Remove what earlier attempts worked with, and what they did not finish."""
        if not self._context.work_dir.is_dir():
            return
        for directory in self._context.work_dir.iterdir():
            if is_no_later(directory.name, self._context.attempt):
                shutil.rmtree(directory, ignore_errors=True)
        for directory in self._snapshot_dirs():
            attempt = directory.name.split("-")[1]
            is_mine_to_judge = is_no_later(attempt, self._context.attempt)
            if directory.name.endswith(_UNFINISHED) and is_mine_to_judge:
                shutil.rmtree(directory, ignore_errors=True)

    def _snapshot_dirs(self) -> list[Path]:
        return list((self._context.work_dir / _SNAPSHOTS).glob("*-*-*"))
