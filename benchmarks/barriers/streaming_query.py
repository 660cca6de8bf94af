"""How long the micro-batches of a streaming query take that has one exchange and hardly any data.

Numbers that Spark makes up itself, the cheapest source it has, a shuffle by key, a Python step,
results collected in `foreachBatch`; the next micro-batch starts as soon as the one before is done.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks import bare_loop
from benchmarks.structured import session

PATIENCE_S = 120.0
FEWEST = 3
"""Micro-batches, however short the time."""


def run(rate: float, seconds: float, warm_up: float) -> dict[str, Any]:
    """Run the query for some seconds after a warm-up; return the seconds of each micro-batch."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as where:
        fed = _measure(_numbers(session({}), rate), Path(where), seconds, warm_up)
    taken = [float(report.durationMs["triggerExecution"]) / 1000 for report in fed]
    print(f"{len(taken)} micro-batches", flush=True)
    return {"micro_batches": taken, "rows": [report.numInputRows for report in fed]}


def _numbers(spark: SparkSession, rate: float) -> DataFrame:
    # The rate source proper makes whole seconds; of this one a micro-batch gets what is due in
    # about the time that it takes.
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", round(rate / 5))
    return numbers.load().selectExpr("cast(value as string) as word")


def _measure(words: DataFrame, directory: Path, seconds: float, warm_up: float) -> list[Any]:
    query = (
        bare_loop.build(words)
        .writeStream.foreachBatch(lambda batch, _: batch.collect())
        .outputMode("append")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )

    def fed() -> list[Any]:
        return [report for report in query.recentProgress if report.numInputRows]

    def wait_for(moment: float, enough: int) -> None:
        patience = moment + PATIENCE_S
        while time.monotonic() < moment or len(fed()) < enough:
            if time.monotonic() > patience or not query.isActive:
                msg = f"{len(fed())} micro-batches of the query; {query.exception()}"
                raise RuntimeError(msg)
            time.sleep(0.05)

    try:
        wait_for(time.monotonic(), 1)
        wait_for(time.monotonic() + warm_up, 2)
        before = len(fed())
        wait_for(time.monotonic() + seconds, before + FEWEST)
        return fed()[before:]
    finally:
        query.stop()
