"""Spark's own aggregation, all in the JVM: one updated count per key and micro-batch.

It hands on less than the others (no update per record) and runs no Python: a yardstick, not a
rival. The state store is the default one, on the heap: it was about twice as fast as
RocksDB here at 10,000 keys.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from benchmarks.structured import StructuredQuery


def build(words: DataFrame) -> DataFrame:
    return words.groupBy("word").count().withColumnRenamed("count", "seen")


CONTENDER = StructuredQuery(build, "update", emits_every_update=False)
