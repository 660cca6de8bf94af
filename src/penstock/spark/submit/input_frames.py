"""DataFrames that Spark reads as the input of a stage, one partition per subtask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TypeAlias

from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession

from penstock.connectors.contracts.source import SparkRead, SparkSource
from penstock.errors import RuntimeSetupError
from penstock.graph.regions import PipelinedRegion
from penstock.spark.native.native_step import NativeStep
from penstock.spark.sources.dataframe_source import DataFrameSource
from penstock.task.messages import SubtaskWork

Frame: TypeAlias = Callable[[Sequence[SubtaskWork]], DataFrame]
"""Builds the DataFrame of one micro-batch."""


class ReusableFrame:
    """A DataFrame that is the same for all micro-batches: planned once and run for each.

    It reads what the instructions name. If these are not in the property, it is planned with them.
    """

    def __init__(self, plan: Callable[[bytes | None], DataFrame]) -> None:
        self._plan = plan
        self.df = plan(None)

    def __call__(self, work: Sequence[SubtaskWork]) -> DataFrame:
        """Return the DataFrame, for instructions in the property."""
        return self.df

    def knowing(self, instructions: bytes) -> DataFrame:
        """Return a DataFrame for one micro-batch."""
        return self._plan(instructions)


_READER_SETTINGS = {
    # A union must keep the partitions of its inputs: each one belongs to a subtask.
    "spark.sql.unionOutputPartitioning": "false",
    "spark.sql.adaptive.enabled": "false",
    # Without kafka: its V2 reader plans in half the time of the V1 reader, which is the default.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
}


def input_frame(
    session: SparkSession, region: PipelinedRegion, task: Broadcast[bytes]
) -> Frame | None:
    """Return how Spark reads the input of a region; None if the tasks read it.

    `task` is the serialized first stage of the region.
    """
    source, parallelism = region.head.head.function, region.head.parallelism
    if isinstance(source, NativeStep):
        return ReusableFrame(partial(source.frame, session, region.head, task))
    if isinstance(source, DataFrameSource):
        assert source.df is not None
        whole = source.df.coalesce(parallelism)
        return lambda _: whole
    if isinstance(source, SparkSource):
        return _ReaderFrames(session, source)
    return None


class _ReaderFrames:
    """Reads the ranges of each subtask with one of Spark's readers."""

    def __init__(self, session: SparkSession, source: SparkSource) -> None:
        self._session = session.newSession()
        for key, value in _READER_SETTINGS.items():
            self._session.conf.set(key, value)
        self._source = source
        self._empty: DataFrame | None = None
        self._check()

    def __call__(self, work: Sequence[SubtaskWork]) -> DataFrame:
        reads = [self._source.spark_read(w.ranges) if w.ranges else None for w in work]
        frames = {i: self._read(read) for i, read in enumerate(reads) if read is not None}
        empty = self._empty_like(next(iter(frames.values())))
        return reduce(DataFrame.unionAll, [frames.get(i, empty) for i in range(len(work))])

    def _read(self, read: SparkRead) -> DataFrame:
        reader = self._session.read.format(self._source.spark_format()).options(**read.options)
        return reader.load().select(*read.columns).coalesce(1)

    def _check(self) -> None:
        """Raise before anything runs if this session has no reader for the source."""
        jvm = self._session._jvm
        assert jvm is not None
        conf = self._session._jsparkSession.sessionState().conf()
        lookup = jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
        try:
            lookup(self._source.spark_format(), conf)
        except Exception as error:
            raise RuntimeSetupError(self._source.missing_reader()) from error

    def _empty_like(self, frame: DataFrame) -> DataFrame:
        """Return one empty partition, for a subtask without input in this micro-batch."""
        if self._empty is None:
            # Not an empty relation: Spark's optimizer would remove it from the union.
            rdd = self._session.sparkContext.parallelize([], 1)
            self._empty = self._session.createDataFrame(rdd, frame.schema)
        return self._empty
