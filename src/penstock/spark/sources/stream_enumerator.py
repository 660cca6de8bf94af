"""Runs a streaming query as a source: plans its rows, and puts its files into snapshots.

Each attempt runs the query in its own directory. A batch is written to Arrow files before Spark
commits it, and its rows are planned only after the commit: rows in flight therefore never belong to
a batch that a restored query would not know. A snapshot hard-links the files of the query as of its
last committed batch, and the files with rows that are not planned yet. Checkpoints refer to these
files, savepoints get copies. A restored attempt starts the query from them, and the query computes
the later batches again.
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

from penstock.connectors.contracts.snapshot_files import SnapshotFile, SnapshotFiles
from penstock.connectors.contracts.source import EnumeratorContext, ReadPlan, SourceEnumerator
from penstock.ids import is_no_later
from penstock.spark.sources.query_files import NONE_COMMITTED, QueryFiles, last_committed, seed
from penstock.spark.sources.stream_log import LoggedFile, ranges_of, write_batch
from penstock.spark.sources.stream_query import StreamQuery
from penstock.storage.durable_files import link_or_copy, make_directory, sync_directory

_ROWS = "rows"
_SNAPSHOTS = "snapshots"
_QUERY = "query"
_LOG = "log"
_UNFINISHED = ".part"
_LARGEST_BACKLOG = 1_000_000
"""Rows that wait to be planned; above this the next batch of the query waits."""
_COMMIT_SECONDS = 0.02
"""How soon to check again whether Spark has committed a batch that is logged."""


class _QueryState(msgspec.Struct, frozen=True):
    """The state of a query in a checkpoint; its field names are persisted."""

    committed: int
    """The last batch that Spark committed."""
    files: list[LoggedFile]
    """The files with rows that are not planned yet."""
    end: int
    """The number of the next row."""
    has_ended: bool


_INITIAL = _QueryState(NONE_COMMITTED, [], 0, False)


class StreamEnumerator(SourceEnumerator):
    """Runs the query and plans its rows; positions count rows."""

    def __init__(
        self, df: DataFrame, trigger: dict[str, object], context: EnumeratorContext
    ) -> None:
        self._df = df
        self._trigger = trigger
        self._context = context
        self._attempt_dir = context.work_dir / context.attempt
        self._log_dir = self._attempt_dir / _LOG
        self._query_dir = self._attempt_dir / _QUERY
        self._restored = _INITIAL
        self._query: StreamQuery | None = None
        self._files_of_query = QueryFiles(self._query_dir)
        self._next = 0
        self._end = 0
        self._committed = NONE_COMMITTED
        self._files: deque[LoggedFile] = deque()
        """Of committed batches, as far as they are still needed."""
        self._lock = threading.Lock()
        self._pending: deque[tuple[int, list[LoggedFile]]] = deque()
        """Batches that are logged and that Spark may not have committed; shared with its thread."""
        self._logged = 0
        self._snapshots = 0
        self._restored_dir: Path | None = None
        """Where the files of the restored snapshot are."""
        self._last_snapshot: tuple[tuple[int, int, bool], bytes, SnapshotFiles] | None = None

    def restore_state(self, memory: bytes) -> None:
        self._restored = msgspec.msgpack.decode(memory, type=_QueryState)

    def restore_files(self, directory: Path) -> None:
        self._restored_dir = directory

    def start(self, positions: Mapping[str, int]) -> None:
        restored = self._restored
        assert restored is _INITIAL or self._restored_dir is not None
        self._next = positions.get(_ROWS, 0)
        self._end = self._logged = restored.end
        self._committed = restored.committed
        self._files.extend(restored.files)
        self._remove_older()
        if self._restored_dir is not None:
            self._restore(self._restored_dir, restored)
        if not restored.has_ended:
            make_directory(self._attempt_dir)
            query = StreamQuery(self._df, self._query_dir, self._trigger, self._log_batch)
            self._query = query
            query.start(self._context.wake)

    def plan(self, max_records: int) -> ReadPlan:
        # Read before the batches: an error is raised after all committed rows are planned.
        error = None if self._query is None else self._query.error
        self._collect_committed()
        if not self._context.checkpointed:
            # There is no restore in this job, and rows that were planned before are published.
            self._delete_rows(self._next)
        end = min(self._end, self._next + max_records)
        if end > self._next:
            start, self._next = self._next, end
            self._apply_backpressure()
            needed = [f for f in self._files if f.overlaps(start, end)]
            return ranges_of(needed, self._log_dir, start, end, self._context.parallelism)
        if error is not None:
            raise error
        return []

    def positions(self) -> dict[str, int]:
        return {_ROWS: self._next}

    def pending_records(self) -> int:
        return self._end - self._next

    def snapshot_state(self) -> bytes:
        if self._query is None:
            return self._snapshot(has_ended=True)
        # Read before the batches: a query that has ended has committed all of them.
        has_ended = self._query.has_ended
        with self._query.paused():
            self._collect_committed()
            return self._snapshot(has_ended)

    def snapshot_files(self) -> SnapshotFiles | None:
        return None if self._last_snapshot is None else self._last_snapshot[2]

    def finished(self) -> bool:
        has_ended = self._query is None or self._query.has_ended
        if has_ended:
            self._collect_committed()
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
        self._delete_rows(lowest)
        for directory in self._snapshot_dirs():
            position, attempt = directory.name.split("-")[:2]
            if int(position) < lowest and is_no_later(attempt, self._context.attempt):
                shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        if self._query is not None:
            self._query.stop()

    # -- called by the query's thread ------------------------------------------------------------

    def _log_batch(self, df: DataFrame, batch: int) -> None:
        files = write_batch(df, self._log_dir, batch, self._logged)
        with self._lock:
            self._logged += sum(f.rows for f in files)
            self._pending.append((batch, files))
        self._apply_backpressure()
        self._context.wake()

    def _apply_backpressure(self) -> None:
        assert self._query is not None or not self._pending
        if self._query is not None:
            self._query.set_full(self._logged - self._next > _LARGEST_BACKLOG)

    # -- called by the loop's thread -------------------------------------------------------------

    def _collect_committed(self) -> None:
        """Make the rows of batches plannable that Spark has committed."""
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

    def _snapshot(self, has_ended: bool) -> bytes:
        state = self._next, self._committed, has_ended
        if self._last_snapshot is not None and self._last_snapshot[0] == state:
            return self._last_snapshot[1]
        needed = [f for f in self._files if f.end > self._next]
        self._snapshots += 1
        name = f"{self._next}-{self._context.attempt}-{self._snapshots}"
        final = self._context.work_dir / _SNAPSHOTS / name
        unfinished = final.with_name(f"{name}{_UNFINISHED}")
        shutil.rmtree(unfinished, ignore_errors=True)
        make_directory(unfinished)
        of_query = self._files_of_query.snapshot(unfinished / _QUERY, self._committed)
        (unfinished / _LOG).mkdir()
        for file in needed:
            link_or_copy(self._log_dir / file.name, unfinished / _LOG / file.name)
        sync_directory(unfinished / _LOG)
        sync_directory(unfinished)
        unfinished.rename(final)
        sync_directory(final.parent)
        memory = msgspec.msgpack.encode(_QueryState(self._committed, needed, self._end, has_ended))
        files = [SnapshotFile(f"{_QUERY}/{f.name}", f.size, f.crc) for f in of_query]
        files += [SnapshotFile(f"{_LOG}/{f.name}", f.size, f.crc) for f in needed]
        self._last_snapshot = state, memory, SnapshotFiles(str(final), files)
        return memory

    def _restore(self, snapshot: Path, restored: _QueryState) -> None:
        seed(snapshot / _QUERY, self._query_dir)
        self._log_dir.mkdir()
        for file in restored.files:
            link_or_copy(snapshot / _LOG / file.name, self._log_dir / file.name)

    def _delete_rows(self, below: int) -> None:
        while self._files and self._files[0].end <= below:
            (self._log_dir / self._files.popleft().name).unlink(missing_ok=True)

    def _remove_older(self) -> None:
        """Remove the working directories and the unfinished snapshots of earlier attempts."""
        if not self._context.work_dir.is_dir():
            return
        for directory in self._context.work_dir.iterdir():
            if is_no_later(directory.name, self._context.attempt):
                shutil.rmtree(directory, ignore_errors=True)
        for directory in self._snapshot_dirs():
            attempt = directory.name.split("-")[1]
            is_unfinished = directory.name.endswith(_UNFINISHED)
            # A later attempt may have taken over meanwhile: its files stay.
            if is_unfinished and is_no_later(attempt, self._context.attempt):
                shutil.rmtree(directory, ignore_errors=True)

    def _snapshot_dirs(self) -> list[Path]:
        return list((self._context.work_dir / _SNAPSHOTS).glob("*-*-*"))
