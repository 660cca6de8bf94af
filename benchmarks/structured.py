"""Contenders that are Structured Streaming queries: how they read, run and are timed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.contract import Answer, Measurement, verify_rows
from benchmarks.memory import MemorySampler
from benchmarks.settings import FILE_SYSTEM_LOG
from benchmarks.workload import Workload


@dataclass(frozen=True)
class MicroBatch:
    """What a query's progress says about one micro-batch."""

    rows: int
    ended: float


@dataclass(frozen=True)
class StructuredQuery:
    """A streaming query over the words; `build` turns lines into rows of (word, seen)."""

    build: Callable[[DataFrame], DataFrame]
    output_mode: str
    emits_every_update: bool
    settings: dict[str, str] = field(default_factory=dict)
    checked_in_one_batch: bool = False

    def check(self, workload: Workload) -> Answer:
        counts: dict[str, int] = {}
        emitted = 0

        def keep(batch: DataFrame, batch_id: int) -> None:
            nonlocal emitted
            for word, seen in batch.collect():
                counts[word] = max(seen, counts.get(word, 0))
                emitted += 1

        files = workload.files if self.checked_in_one_batch else workload.files_per_batch
        words = read_words(self._session(), workload, files)
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as checkpoint:
            self._run(self.build(words).writeStream.foreachBatch(keep), checkpoint)
        return Answer(counts, emitted)

    def measure(self, workload: Workload) -> Measurement:
        words = read_words(self._session(), workload, workload.files_per_batch)
        with (
            tempfile.TemporaryDirectory(prefix="penstock-bench-") as checkpoint,
            MemorySampler() as memory,
        ):
            progress = self._run(self.build(words).writeStream.format("noop"), checkpoint)
        first, *rest = micro_batches(progress)
        rows = sum(batch.rows for batch in rest)
        verify_rows(first.rows + rows, workload)
        return Measurement(
            rows=rows,
            seconds=rest[-1].ended - first.ended,
            micro_batches=len(rest),
            peak_worker_memory_mb=memory.peak_worker_mb,
            peak_jvm_memory_mb=memory.peak_jvm_mb,
        )

    def _session(self) -> SparkSession:
        return session(self.settings)

    def _run(self, writer: Any, checkpoint: str) -> list[Any]:
        query = (
            writer.outputMode(self.output_mode)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return list(query.recentProgress)


def session(settings: dict[str, str]) -> SparkSession:
    """The session of this process, with what makes small micro-batches cheaper already set."""
    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", FILE_SYSTEM_LOG)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    for name, value in settings.items():
        spark.conf.set(name, value)
    return spark


def read_words(spark: SparkSession, workload: Workload, files_per_trigger: int) -> DataFrame:
    """Read the workload as a stream of one column, `word`."""
    reader = spark.readStream.option("maxFilesPerTrigger", files_per_trigger)
    return reader.text(str(workload.directory)).withColumnRenamed("value", "word")


def micro_batches(progress: list[Any]) -> list[MicroBatch]:
    """The micro-batches that had input, with the moment each was done."""
    return [
        MicroBatch(report.numInputRows, ended(report))
        for report in progress
        if report.numInputRows > 0
    ]


def ended(report: Any) -> float:
    """When the trigger was over, in epoch seconds."""
    started = datetime.fromisoformat(report.timestamp).timestamp()
    return started + float(report.durationMs["triggerExecution"]) / 1000
