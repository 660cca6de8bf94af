"""Kafka to PostgreSQL, exactly once, beside a plain COPY of the same rows by one process.

Both take turns. The job's rate is taken as that of the count: behind the source's first
micro-batch, up to its end, when all rows can be seen. The plain one has its rows in memory already:
it writes them one by one (`Copy.write_row`) and commits; reading and parsing are not in its time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.connectors import jobs
from benchmarks.connectors.orders import Orders, row_of
from benchmarks.contract import WrongResultError
from penstock.common import Types
from penstock.datastream.connectors.postgres import PostgresSink

JOB, PLAIN = "penstock", "plain COPY"
COLUMNS = ("customer", "number", "cents")
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
    """Measure both, in turns, behind a warm-up; say how fast each run was."""
    settings = {"execution.checkpointing.interval": f"{round(interval_s * 1000)} ms"}
    job = _Job(bootstrap, dsn, settings, rows_per_batch, Path(directory))
    job.measure(*check)
    copied = [row_of(line) for lines in Orders(orders[1], keys).lines() for line in lines]
    found = []
    # A, B, B, A: what gets slower or faster with time falls on both.
    for number in range(2 * rounds):
        kind = PLAIN if number % 4 in (1, 2) else JOB
        one = plain(dsn, copied) if kind is PLAIN else job.measure(*orders)
        print(f"{kind}: {one['rows'] / one['seconds']:,.0f} rows/s", flush=True)
        found.append({"kind": kind, **one})
    return {"runs": found}


def plain(dsn: str, rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    with _Table(dsn) as table, psycopg.connect(dsn) as connection:
        began = time.time()
        with connection.cursor().copy(f"COPY {table.name} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        connection.commit()
        seconds = time.time() - began
        table.check(len(rows))
    return {"rows": len(rows), "seconds": seconds}


@dataclass(frozen=True)
class _Job:
    bootstrap: str
    dsn: str
    settings: dict[str, str]
    rows_per_batch: int
    directory: Path

    def measure(self, topic: str, rows: int) -> dict[str, Any]:
        shutil.rmtree(self.directory, ignore_errors=True)
        with _Table(self.dsn) as table:
            more = {
                "execution.checkpointing.dir": str(self.directory),
                "penstock.job-id": table.name,
            }
            env = jobs.environment({**self.settings, **more}, self.rows_per_batch)
            sink = PostgresSink.builder().set_dsn(self.dsn).set_table(table.name)
            parsed = jobs.orders_in(env, self.bootstrap, topic).map(row_of, output_type=ROW)
            parsed.sink_to(sink.set_columns(*COLUMNS).build())
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
    """A table of its own for a run."""

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
