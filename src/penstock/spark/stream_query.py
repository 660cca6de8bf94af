"""A streaming query of the user's, run beside a job: each batch of it goes to the job's source."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import StreamQueryError
from penstock.spark.first_cause import first_cause

Log = Callable[[DataFrame, int], None]

_SETTINGS = {
    # What is older than a few batches is in checkpoints, or nobody needs it.
    "spark.sql.streaming.minBatchesToRetain": "10",
    # A local directory needs no more than a renaming.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    "checkpointing.FileSystemBasedCheckpointFileManager",
}


class _Stopping(Exception):
    """A batch was given up because the job ends: it must not count."""


class StreamQuery:
    """One run of a query; `log` is called with each batch, in a thread of Spark's."""

    def __init__(
        self, df: DataFrame, directory: Path, trigger: dict[str, object], log: Log
    ) -> None:
        self.error: StreamQueryError | None = None
        self.has_ended = False
        """Whether it came to its end by itself: all its batches count."""
        self._log = log
        self._reason: str | None = None
        self._turn = threading.Condition()
        self._is_held = False
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
        """Begin; `wake` is called when it has ended or failed."""
        try:
            self._query = self._writer.start()
        except Exception as error:
            raise StreamQueryError(first_cause(str(error))) from error
        self._watcher = threading.Thread(
            target=self._watch, args=(self._query, wake), name="stream-query", daemon=True
        )
        self._watcher.start()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no batch begin inside; one that is under way goes on."""
        self._set(is_held=True)
        try:
            yield
        finally:
            self._set(is_held=False)

    def set_full(self, is_full: bool) -> None:
        """Say whether enough rows wait, so that the next batch has to."""
        if is_full is not self._is_full:
            self._set(is_full=is_full)

    def stop(self) -> None:
        """End it; a batch that is under way does not count."""
        with self._turn:
            self._is_stopping = True
            self._turn.notify_all()
        if self._query is not None:
            with contextlib.suppress(Exception):  # Spark itself may be gone
                self._query.stop()
        if self._watcher is not None:
            self._watcher.join(timeout=60)

    def _set(self, is_held: bool | None = None, is_full: bool | None = None) -> None:
        with self._turn:
            self._is_held = self._is_held if is_held is None else is_held
            self._is_full = self._is_full if is_full is None else is_full
            self._turn.notify_all()

    def _on_batch(self, df: DataFrame, batch: int) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._is_stopping or not (self._is_held or self._is_full))
        if self._is_stopping:
            raise _Stopping
        try:
            self._log(df, batch)
        except Exception as error:
            # Spark will tell of it as a failure of this function.
            self._reason = first_cause(str(error))
            raise
        # What returns is a batch that counts.
        if self._is_stopping:
            raise _Stopping

    def _watch(self, query: StreamingQuery, wake: Callable[[], None]) -> None:
        try:
            query.awaitTermination()
            self.has_ended = not self._is_stopping
        except Exception as error:
            self.error = StreamQueryError(self._reason or first_cause(str(error)))
        finally:
            wake()


def _in_own_session(df: DataFrame) -> DataFrame:
    """Return the same DataFrame in a session with settings of its own."""
    session = df.sparkSession
    java = session._jsparkSession.cloneSession()
    own = SparkSession(session.sparkContext, java)
    for key, value in _SETTINGS.items():
        own.conf.set(key, value)
    jvm = session._jvm
    assert jvm is not None
    plan = df._jdf.queryExecution().analyzed()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(java, plan), own)
