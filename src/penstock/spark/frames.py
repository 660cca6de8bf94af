"""What Spark reads for a stage: a DataFrame whose partitions are the stage's subtasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession

from penstock.connectors.source import SparkRead, SparkSource
from penstock.errors import RuntimeSetupError
from penstock.graph.groups import Group
from penstock.spark.dataframe_source import DataFrameSource
from penstock.spark.native_step import NativeStep
from penstock.task.messages import SubtaskWork

Frame: TypeAlias = Callable[[Sequence[SubtaskWork]], DataFrame]
"""Makes the DataFrame of one micro-batch."""


class LastingFrame:
    """A DataFrame that is the same for all micro-batches: planned once, and run for each."""

    def __init__(self, df: DataFrame) -> None:
        self.df = df

    def __call__(self, work: Sequence[SubtaskWork]) -> DataFrame:
        """Return it."""
        return self.df


_PLANNED_PLAINLY = {
    # Else partitions of readers that have one each would be put together.
    "spark.sql.unionOutputPartitioning": "false",
    "spark.sql.adaptive.enabled": "false",
    # Without kafka, whose newer reader plans in half the time of the older one, the default.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
}


def frame_of(session: SparkSession, group: Group, task: Broadcast[bytes]) -> Frame | None:
    """Tell how Spark reads a group's input; None if the tasks do that.

    `task` is the group's first stage as it is shipped.
    """
    source, parallelism = group.head.head.function, group.head.parallelism
    if isinstance(source, NativeStep):
        return LastingFrame(source.frame(session, group.head, task))
    if isinstance(source, DataFrameSource):
        assert source.df is not None
        whole = source.df.coalesce(parallelism)
        return lambda _: whole
    if isinstance(source, SparkSource):
        return _ReaderFrames(session, source)
    return None


class _ReaderFrames:
    """Reads the ranges of each subtask with a reader of Spark's own."""

    def __init__(self, session: SparkSession, source: SparkSource) -> None:
        self._session = session.newSession()
        for key, value in _PLANNED_PLAINLY.items():
            self._session.conf.set(key, value)
        self._source = source
        self._nothing: DataFrame | None = None
        self._check()

    def __call__(self, work: Sequence[SubtaskWork]) -> DataFrame:
        reads = [self._source.spark_read(w.ranges) if w.ranges else None for w in work]
        frames = {i: self._read(read) for i, read in enumerate(reads) if read is not None}
        nothing = self._nothing_like(next(iter(frames.values())))
        return reduce(DataFrame.unionAll, [frames.get(i, nothing) for i in range(len(work))])

    def _read(self, read: SparkRead) -> DataFrame:
        reader = self._session.read.format(self._source.spark_format()).options(**read.options)
        return reader.load().select(*read.columns).coalesce(1)

    def _check(self) -> None:
        """Refuse a source that this session cannot read, before anything runs."""
        jvm = self._session._jvm
        assert jvm is not None
        conf = self._session._jsparkSession.sessionState().conf()
        lookup = jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
        try:
            lookup(self._source.spark_format(), conf)
        except Exception as error:
            raise RuntimeSetupError(self._source.missing_reader()) from error

    def _nothing_like(self, frame: DataFrame) -> DataFrame:
        """Return one empty partition, for a subtask that has nothing to read now."""
        if self._nothing is None:
            # A relation that Spark knows to be empty would vanish from the union.
            empty = self._session.sparkContext.parallelize([], 1)
            self._nothing = self._session.createDataFrame(empty, frame.schema)
        return self._nothing
