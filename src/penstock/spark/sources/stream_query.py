"""Runs a streaming query next to a job and passes each of its batches to the job's source."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import StreamQueryError
from penstock.spark.root_cause import root_cause

Log = Callable[[DataFrame, int], None]

_SETTINGS = {
    # Older batches are only needed by checkpoints, which have their own links.
    "spark.sql.streaming.minBatchesToRetain": "10",
    # In a local directory a rename is enough.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    "checkpointing.FileSystemBasedCheckpointFileManager",
}


class _Stopping(Exception):
    """A batch is aborted because the job ends: Spark must not commit it."""


class StreamQuery:
    """One run of a query; `log` is called with each batch, in a thread of Spark."""

    def __init__(
        self, df: DataFrame, directory: Path, trigger: dict[str, object], log: Log
    ) -> None:
        self.error: StreamQueryError | None = None
        self.has_ended = False
        """Whether it ended by itself, with all its batches committed."""
        self._log = log
        self._reason: str | None = None
        self._may_start = threading.Condition()
        self._is_paused = False
        self._is_full = False
        self._is_stopping = False
        writer = _in_own_session(df).writeStream.outputMode("append").foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", directory.as_uri())
        if trigger:
            writer = writer.trigger(**trigger)
        self._writer = writer
        self._query: StreamingQuery | None = None
        self._watcher: threading.Thread | None = None

    def start(self, wake: Callable[[], None]) -> None:
        """Start; `wake` is called when the query has ended or failed."""
        try:
            self._query = self._writer.start()
        except Exception as error:
            raise StreamQueryError(root_cause(str(error))) from error
        self._watcher = threading.Thread(
            target=self._watch, args=(self._query, wake), name="stream-query", daemon=True
        )
        self._watcher.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep new batches from starting inside the block; a running batch continues."""
        self._set(is_paused=True)
        try:
            yield
        finally:
            self._set(is_paused=False)

    def set_full(self, is_full: bool) -> None:
        """Set whether so many rows wait that the next batch must wait."""
        if is_full is not self._is_full:
            self._set(is_full=is_full)

    def stop(self) -> None:
        """Stop the query; a running batch is not committed."""
        with self._may_start:
            self._is_stopping = True
            self._may_start.notify_all()
        if self._query is not None:
            with contextlib.suppress(Exception):  # Spark itself may be gone
                self._query.stop()
        if self._watcher is not None:
            self._watcher.join(timeout=60)

    def _set(self, is_paused: bool | None = None, is_full: bool | None = None) -> None:
        with self._may_start:
            self._is_paused = self._is_paused if is_paused is None else is_paused
            self._is_full = self._is_full if is_full is None else is_full
            self._may_start.notify_all()

    def _on_batch(self, df: DataFrame, batch: int) -> None:
        with self._may_start:
            self._may_start.wait_for(
                lambda: self._is_stopping or not (self._is_paused or self._is_full)
            )
        if self._is_stopping:
            raise _Stopping
        try:
            self._log(df, batch)
        except Exception as error:
            # Spark reports it as a failure of this function, without the cause.
            self._reason = root_cause(str(error))
            raise
        # Spark commits the batch when this function returns.
        if self._is_stopping:
            raise _Stopping

    def _watch(self, query: StreamingQuery, wake: Callable[[], None]) -> None:
        try:
            query.awaitTermination()
            self.has_ended = not self._is_stopping
        except Exception as error:
            self.error = StreamQueryError(self._reason or root_cause(str(error)))
        finally:
            wake()


def _in_own_session(df: DataFrame) -> DataFrame:
    """Return the same DataFrame in a session with separate settings."""
    session = df.sparkSession
    java = session._jsparkSession.cloneSession()
    own = SparkSession(session.sparkContext, java)
    for key, value in _SETTINGS.items():
        own.conf.set(key, value)
    jvm = session._jvm
    assert jvm is not None
    plan = df._jdf.queryExecution().analyzed()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(java, plan), own)
