"""Spark's own streaming queries over the same topic, with micro-batches of the same size.

- `count`: an aggregation in update mode into Kafka, all in the JVM, at least once. It hands on one
  row per key and micro-batch where penstock hands on one per order.
- `to_python`: the values as text, given to a Python function that makes a list of strings out of
  them and drops it: what a source of penstock does for the functions after it.
- `in_jvm`: the values as text into Spark's sink that does nothing; no Python at all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.connectors.counting import check_counts
from benchmarks.connectors.orders import Orders, create_topic, delete_topic
from benchmarks.contract import WrongResultError
from benchmarks.structured import micro_batches, session


def run(
    bootstrap: str,
    check: Sequence[Any],
    orders: Sequence[Any],
    keys: int,
    rounds: int,
    rows_per_batch: int,
    queries: Sequence[str],
) -> dict[str, Any]:
    """Check and measure the queries, in turns; say how fast each run was."""
    spark = session({})
    expected = Orders(check[1], keys).customers()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in queries}
    # The round that is checked and the next count for nothing: a JVM gets faster for a while.
    for number in range(-1, rounds + 1):
        topic, rows = check if number < 0 else orders
        lines = read_orders(spark, bootstrap, topic, rows_per_batch)
        for name in queries if number % 2 else reversed(queries):
            to = f"counts-{name.replace('_', '-')}-{number}"
            create_topic(bootstrap, to)
            one = _steady(QUERIES[name](lines, bootstrap, to), rows)
            if number < 0 and name == "count":
                check_counts(bootstrap, to, expected)
            delete_topic(bootstrap, to)
            if number > 0:
                print(f"{name}: {one['rows'] / one['seconds']:,.0f} rows/s", flush=True)
                found[name].append(one)
    return {"queries": found}


def read_orders(spark: SparkSession, bootstrap: str, topic: str, rows_per_batch: int) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows_per_batch)
        .load()
        .selectExpr("cast(value as string) as line")
    )


def count(lines: DataFrame, bootstrap: str, topic: str) -> Any:
    counted = lines.selectExpr("substring_index(line, ',', 1) as key").groupBy("key").count()
    writer = counted.selectExpr("key", "cast(count as string) as value").writeStream
    return (
        writer.outputMode("update")
        .format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
    )


def to_python(lines: DataFrame, bootstrap: str, topic: str) -> Any:
    return lines.mapInArrow(_drop, "line string").writeStream.format("noop")


def in_jvm(lines: DataFrame, bootstrap: str, topic: str) -> Any:
    return lines.writeStream.format("noop")


QUERIES: dict[str, Callable[[DataFrame, str, str], Any]] = {
    "count": count,
    "to_python": to_python,
    "in_jvm": in_jvm,
}


def _drop(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        batch.column(0).to_pylist()
    yield from ()


def _steady(writer: Any, rows: int) -> dict[str, Any]:
    """Run a query over all input; return rows and seconds after its first micro-batch."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as where:
        query = writer.option("checkpointLocation", where).trigger(availableNow=True).start()
        query.awaitTermination()
        batches = micro_batches(list(query.recentProgress))
    if sum(one.rows for one in batches) != rows:
        msg = f"processed {sum(one.rows for one in batches)} rows of {rows}"
        raise WrongResultError(msg)
    first, *rest = batches
    return {
        "rows": sum(one.rows for one in rest),
        "seconds": rest[-1].ended - first.ended,
        "micro_batches": len(rest),
    }
