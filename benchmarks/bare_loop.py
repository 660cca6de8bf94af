"""The lowest cost of a Python step after Spark's shuffle: a dict and no store.

The dict lives in a worker process. Workers are interchangeable from one micro-batch to the next, so
the counts are right within one micro-batch only, and nothing survives a failure: this is a bound on
speed, not a way to do it. It is therefore checked over a single micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.structured import StructuredQuery, session

COUNTS: dict[tuple[str, int], dict[str, int]] = {}


def count_step(run: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Count words against a dict that this worker process keeps for this run."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = COUNTS.setdefault((run, TaskContext.get().partitionId()), {})
        for batch in batches:
            words = batch.column(0).to_pylist()
            seen = []
            for word in words:
                count = counts.get(word, 0) + 1
                counts[word] = count
                seen.append(count)
            yield pa.RecordBatch.from_arrays(
                [pa.array(words, pa.string()), pa.array(seen, pa.int64())], ["word", "seen"]
            )

    return step


def build(words: DataFrame) -> DataFrame:
    spark = session({})
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
    keyed = words.repartition(partitions, F.col("word"))
    run = f"{spark.sparkContext.applicationId}-{id(words)}"
    return keyed.mapInArrow(count_step(run), "word string, seen long")


CONTENDER = StructuredQuery(build, "append", emits_every_update=True, checked_in_one_batch=True)
