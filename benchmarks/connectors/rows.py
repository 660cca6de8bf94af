"""Rows into PostgreSQL, exactly once, beside a plain COPY of the same rows by one process.

Four kinds take turns: the job from Kafka, the same job with generated rows instead of Kafka's,
and one process with psycopg (`Copy.write_row`, then a commit) that reads and parses what is in
Kafka, or has all rows in memory already. A job's rate is measured like that of the count: after the
source's first micro-batch, up to its end, when all rows can be seen.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.connectors import jobs
from benchmarks.connectors.orders import Orders, read_topic, row_of
from benchmarks.contract import WrongResultError
from penstock.common import Types, WatermarkStrategy
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.connectors.postgres import PostgresSink

JOB, OWN_ROWS = "penstock from Kafka", "penstock with its own rows"
PLAIN, FROM_KAFKA = "plain COPY", "plain COPY from Kafka"
COLUMNS = ("customer", "number", "cents")
CUSTOMERS = [f"k{number:07d}" for number in range(10_000)]
ROW = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])


def run(
    bootstrap: str,
    dsn: str,
    check: Sequence[Any],
    orders: Sequence[Any],
    keys: int,
    rounds: int,
    rows_per_batch: int,
    interval_s: float,
    directory: str,
) -> dict[str, Any]:
    """Measure all kinds, in turns, after a warm-up; return the rate of each run."""
    settings = {"execution.checkpointing.interval": f"{round(interval_s * 1000)} ms"}
    job = _Job(bootstrap, dsn, settings, rows_per_batch, Path(directory))
    copied = [row_of(line) for lines in Orders(orders[1], keys).lines() for line in lines]
    kinds = {
        JOB: lambda: job.measure(*orders),
        PLAIN: lambda: plain(dsn, copied, orders[1]),
        OWN_ROWS: lambda: job.measure(None, orders[1]),
        FROM_KAFKA: lambda: plain(dsn, rows_in(bootstrap, orders[0]), orders[1]),
    }
    job.measure(*check)
    job.measure(None, check[1])
    found = []
    for number in range(rounds):
        # There and back: what gets slower or faster with time falls on all.
        for kind in kinds if number % 2 == 0 else reversed(kinds):
            one = kinds[kind]()
            print(f"{kind}: {one['rows'] / one['seconds']:,.0f} rows/s", flush=True)
            found.append({"kind": kind, **one})
    return {"runs": found}


def rows_in(bootstrap: str, topic: str) -> Iterator[tuple[Any, ...]]:
    for messages in read_topic(bootstrap, topic):
        for _, value in messages:
            yield row_of(value.decode())


def plain(dsn: str, rows: Iterable[tuple[Any, ...]], count: int) -> dict[str, Any]:
    with _Table(dsn) as table, psycopg.connect(dsn) as connection:
        began = time.time()
        with connection.cursor().copy(f"COPY {table.name} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        connection.commit()
        seconds = time.time() - began
        table.check(count)
    return {"rows": count, "seconds": seconds}


def row_for(number: int) -> tuple[str, int, int]:
    return CUSTOMERS[number * 7919 % len(CUSTOMERS)], number, number * 31 % 9000 + 100


@dataclass(frozen=True)
class _Job:
    bootstrap: str
    dsn: str
    settings: dict[str, str]
    rows_per_batch: int
    directory: Path

    def measure(self, topic: str | None, rows: int) -> dict[str, Any]:
        """Run the job from a topic, or with rows that it makes up."""
        shutil.rmtree(self.directory, ignore_errors=True)
        with _Table(self.dsn) as table:
            more = {
                "execution.checkpointing.dir": str(self.directory),
                "penstock.job-id": table.name,
            }
            env = jobs.environment({**self.settings, **more}, self.rows_per_batch)
            sink = PostgresSink.builder().set_dsn(self.dsn).set_table(table.name)
            if topic is None:
                numbers = NumberSequenceSource(0, rows - 1)
                stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
                made = stream.map(row_for, output_type=ROW)
            else:
                made = jobs.orders_in(env, self.bootstrap, topic).map(row_of, output_type=ROW)
            made.sink_to(sink.set_columns(*COLUMNS).build())
            reports = list(env.execute(table.name).get_micro_batches())
            ended = time.time()
            table.check(rows)
        shutil.rmtree(self.directory, ignore_errors=True)
        first = min(reports, key=lambda one: one.published)
        return {
            "rows": rows - first.records_in,
            "seconds": ended - first.published,
            "last_published": max(one.published for one in reports) - first.published,
        }


class _Table:
    """Create a new table for a run."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.name = f"orders_{time.monotonic_ns()}"

    def __enter__(self) -> _Table:
        columns = "customer text, number bigint, cents bigint"
        with psycopg.connect(self._dsn) as connection:
            connection.execute(f"CREATE TABLE {self.name} ({columns})")
        return self

    def __exit__(self, *error: object) -> None:
        with psycopg.connect(self._dsn) as connection:
            connection.execute(f"DROP TABLE {self.name}")

    def check(self, rows: int) -> None:
        """Refuse a run that did not write each order once."""
        with psycopg.connect(self._dsn) as connection:
            query = f"SELECT count(*), count(DISTINCT number) FROM {self.name}"
            found = connection.execute(query).fetchone()
        if found != (rows, rows):
            msg = f"{found} rows, and different ones, of {rows}"
            raise WrongResultError(msg)
