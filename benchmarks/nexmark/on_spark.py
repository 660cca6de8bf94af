"""NEXMark's queries in Spark's own operators: Structured Streaming, all in the JVM.

The same lines and columns as in `queries`. Windows and sessions are closed by a watermark, in
append mode; q3 is an inner join of two streams without a bound, and q18 an aggregation in update
mode that hands on one row per key and micro-batch. Spark's queries end without closing the windows
that are still open, so the small input that is checked gets a few later events at its end,
which close them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from benchmarks.memory import MemorySampler
from benchmarks.nexmark.contract import Timed, verified
from benchmarks.nexmark.events import AUCTION, BID, DELAY_MS, PERSON, Events
from benchmarks.structured import micro_batches, session

LATER = 10**9
CLOSING = (
    f"{PERSON},{{time}},-1,name,email,card,city,XX,extra",
    f"{AUCTION},{{time}},-1,item,text,1,1,1,-2,0,extra",
    f"{BID},{{time}},-1,-1,1,channel,url,extra",
)


@dataclass(frozen=True)
class Query:
    """Lines to rows; `scans` is how often the lines are read for it."""

    build: Callable[[DataFrame], DataFrame]
    mode: str = "append"
    scans: int = 1
    closes: bool = False


def columns(lines: DataFrame, kinds: str, *chosen: str) -> DataFrame:
    """Lines of some kinds, taken apart: `c` is all columns, of which expressions choose."""
    of_kind = lines.where(f.substring("value", 1, 1).isin(*kinds))
    return of_kind.select(f.split("value", ",").alias("c")).selectExpr(*chosen)


def number(column: int, name: str) -> str:
    return f"cast(c[{column}] as bigint) as {name}"


def timed(rows: DataFrame) -> DataFrame:
    """Rows with an event time, in milliseconds, as `time`."""
    stamped = rows.withColumn("at", f.timestamp_millis("time"))
    return stamped.withWatermark("at", f"{DELAY_MS} milliseconds")


def millis(moment: str) -> Any:
    return f.unix_millis(f.col(moment))


def q1(lines: DataFrame) -> DataFrame:
    euros = "cast(cast(c[4] as bigint) as double) * 0.908d as price"
    return columns(lines, BID, number(2, "auction"), number(1, "time"), number(3, "bidder"), euros)


def q2(lines: DataFrame) -> DataFrame:
    return columns(lines, BID, number(2, "auction"), number(4, "price")).where("auction % 123 = 0")


def q3(lines: DataFrame) -> DataFrame:
    who = ("c[3] as name", "c[6] as city", "c[7] as state")
    people = columns(lines, PERSON, number(2, "id"), *who).where("state in ('OR', 'ID', 'CA')")
    auctions = columns(
        lines, AUCTION, number(8, "seller"), number(2, "auction"), number(9, "category")
    ).where("category = 10")
    joined = people.join(auctions, people.id == auctions.seller)
    return joined.select("name", "city", "state", "auction")


def q5(lines: DataFrame) -> DataFrame:
    bids = timed(columns(lines, BID, number(2, "auction"), number(1, "time")))
    counts = bids.groupBy(f.window("at", "10 seconds", "2 seconds"), "auction").count()
    most = f.max(f.struct("count", (-f.col("auction")).alias("before"))).alias("most")
    return (
        counts.groupBy("window")
        .agg(most)
        .select(millis("window.end"), -f.col("most.before"), f.col("most.count"))
    )


def q7(lines: DataFrame) -> DataFrame:
    chosen = (number(4, "price"), number(1, "time"), number(2, "auction"), number(3, "bidder"))
    bids = timed(columns(lines, BID, *chosen))
    highest = f.max(f.struct("price", "time", "auction", "bidder")).alias("highest")
    return bids.groupBy(f.window("at", "10 seconds")).agg(highest).select("highest.*")


def q8(lines: DataFrame) -> DataFrame:
    who = f"cast(if(c[0] = '{PERSON}', c[2], c[8]) as bigint) as id"
    name = f"if(c[0] = '{PERSON}', c[3], null) as name"
    sells = f"c[0] = '{AUCTION}' as sells"
    seen = timed(columns(lines, PERSON + AUCTION, who, number(1, "time"), name, sells))
    return (
        seen.groupBy(f.window("at", "10 seconds"), "id")
        .agg(f.max("name").alias("name"), f.max("sells").alias("sells"))
        .where("name is not null and sells")
        .select("id", "name", millis("window.start"))
    )


def q11(lines: DataFrame) -> DataFrame:
    bids = timed(columns(lines, BID, number(3, "bidder"), number(1, "time")))
    sessions = bids.groupBy(f.session_window("at", "10 seconds"), "bidder").count()
    return sessions.select(
        "bidder", "count", millis("session_window.start"), millis("session_window.end")
    )


def q18(lines: DataFrame) -> DataFrame:
    whole = (number(1, "time"), number(4, "price"), number(2, "auction"), number(3, "bidder"))
    bids = columns(lines, BID, *whole, "c[5] as channel", "c[6] as url", "c[7] as extra")
    last = f.max(f.struct("time", "price", "channel", "url", "extra")).alias("last")
    chosen = ("last.time", "last.price", "auction", "bidder")
    return (
        bids.groupBy("bidder", "auction")
        .agg(last)
        .select(*chosen, "last.channel", "last.url", "last.extra")
    )


QUERIES = {
    "q1": Query(q1),
    "q2": Query(q2),
    "q3": Query(q3, scans=2),
    "q5": Query(q5, closes=True),
    "q7": Query(q7, closes=True),
    "q8": Query(q8, closes=True),
    "q11": Query(q11, closes=True),
    "q18": Query(q18, mode="update"),
}


def run(query: str, check: dict[str, Any], events: dict[str, Any], parallelism: int) -> Timed:
    """Check a query on few events, then time it on many."""
    build = QUERIES[query]
    verified(query, _rows(build, Events(**check), parallelism), Events(**check))
    return _time(build, Events(**events), parallelism)


def _rows(query: Query, events: Events, parallelism: int) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        rows.extend(map(tuple, batch.collect()))

    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        closed = Path(directory, "events")
        shutil.copytree(events.parts, closed)
        if query.closes:
            _close(closed, events)
        _run(query, closed, parallelism, lambda writer: writer.foreachBatch(keep))
    return rows


def _close(directory: Path, events: Events) -> None:
    first = int(next(events.lines()).split(",", 2)[1])
    path = directory / "part-closing.txt"
    path.write_text("".join(f"{line.format(time=first + LATER)}\n" for line in CLOSING))
    last = events.paths()[-1].stat().st_mtime
    os.utime(path, (last + 1, last + 1))


def _time(query: Query, events: Events, parallelism: int) -> Timed:
    with MemorySampler() as memory:
        progress = _run(query, events.parts, parallelism, lambda writer: writer.format("noop"))
    first, *rest = micro_batches(progress)
    rows = sum(batch.rows for batch in rest)
    return Timed(
        events=rows // query.scans,
        all_events=(first.rows + rows) // query.scans,
        seconds=rest[-1].ended - first.ended,
        worker_mb=None,
        jvm_mb=memory.peak_jvm_mb,
    )


def _run(query: Query, directory: Path, parallelism: int, to: Callable[[Any], Any]) -> list[Any]:
    # A micro-batch is a part for every core.
    spark = session({"spark.sql.shuffle.partitions": str(parallelism)})
    lines = spark.readStream.option("maxFilesPerTrigger", parallelism).text(str(directory))
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as where:
        started = (
            to(query.build(lines).writeStream.outputMode(query.mode))
            .option("checkpointLocation", where)
            .trigger(availableNow=True)
            .start()
        )
        started.awaitTermination()
        return list(started.recentProgress)
