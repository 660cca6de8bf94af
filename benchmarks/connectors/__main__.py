"""Run the benchmarks of connectors: `python -m benchmarks.connectors [PART ...]`.

Parts: `count` (Kafka, count per key, Kafka: exactly once, at least once, Spark's own query),
`source` (the Kafka source alone beside Spark's own), `rows` (Kafka to PostgreSQL beside a plain
COPY) and `visible` (how soon results are seen). Without a part all of them run, some 15 minutes;
`--scale 0.01` makes everything a hundred times smaller, to see that it works.

It starts a broker and a database, and sends the orders once for all parts. Tables go to
stdout as markdown, progress to stderr, raw numbers into a JSON file per part.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.bench import RESULTS, Bench
from benchmarks.connectors import tables
from benchmarks.connectors.orders import Orders
from benchmarks.job import TaskJob
from benchmarks.plan import FEW_KEYS
from benchmarks.process import Runner
from benchmarks.results import machine_facts
from benchmarks.workload import default_cache
from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.kafka_files import connector_jars
from penstock.testing.servers.postgres_server import PostgresServer

BROKER_JVM = ("-Xms1g", "-Xmx1g")
"""One that may get warm, unlike that of the tests."""


@dataclass(frozen=True)
class Given:
    """The options of all parts."""

    bootstrap: str
    dsn: str
    orders: dict[str, Any]
    """Both topics, and how they are cut."""
    checkpointed: dict[str, Any]
    chosen: argparse.Namespace


def run_count(bench: Bench, given: Given) -> None:
    shared = {"bootstrap": given.bootstrap, **given.orders}
    jobs_of_part = [
        TaskJob("connectors.counting:run", {**shared, **given.checkpointed}),
        TaskJob("connectors.spark_queries:run", {**shared, "queries": ["count"]}),
    ]
    measured = bench.run_all("count", jobs_of_part, _engine)
    bench.save("count", measured)
    bench.show(tables.count_sheet(measured))


def run_source(bench: Bench, given: Given) -> None:
    shared = {"bootstrap": given.bootstrap, **given.orders}
    without_keys = {name: value for name, value in shared.items() if name != "keys"}
    jobs_of_part = [
        TaskJob("connectors.source_alone:run", without_keys),
        TaskJob("connectors.spark_queries:run", {**shared, "queries": ["to_python", "in_jvm"]}),
    ]
    measured = bench.run_all("source", jobs_of_part, _engine)
    bench.save("source", measured)
    bench.show(tables.source_sheet(measured))


def run_rows(bench: Bench, given: Given) -> None:
    shared = {"bootstrap": given.bootstrap, "dsn": given.dsn, **given.orders}
    jobs_of_part = [TaskJob("connectors.rows:run", {**shared, **given.checkpointed})]
    measured = bench.run_all("rows", jobs_of_part, _engine)
    bench.save("rows", measured)
    bench.show(tables.rows_sheet(measured))


def run_visible(bench: Bench, given: Given) -> None:
    chosen = given.chosen
    seconds = {"seconds": chosen.seconds * chosen.scale, "warm_up": chosen.warm_up * chosen.scale}
    places = {"bootstrap": given.bootstrap, "dsn": given.dsn}
    more = {"rate": chosen.rate, "interval_s": 1.0, "directory": given.checkpointed["directory"]}
    jobs_of_part = [TaskJob("connectors.visible:run", {**places, **seconds, **more})]
    measured = bench.run_all("visible", jobs_of_part, _engine)
    bench.save("visible", measured)
    bench.show(tables.visible_sheet(measured))


PARTS = {
    "count": run_count,
    "source": run_source,
    "rows": run_rows,
    "visible": run_visible,
}
OF_ORDERS = ("count", "source", "rows")


def _engine(given: dict[str, Any]) -> str:
    return "Spark's own" if "queries" in given else "penstock"


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parse(arguments)
    progress = Console(stderr=True, highlight=False)
    runner = Runner(
        Path(chosen.cache) / "jobs", chosen.parallelism, chosen.driver_memory, chosen.timeout
    )
    bench = Bench("connectors", replace(runner, jars=connector_jars()), chosen.results, progress)
    print(", ".join(f"{name} {value}" for name, value in machine_facts().items()) + "\n")
    parts = chosen.parts or list(PARTS)
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(jvm=BROKER_JVM))
        database = stack.enter_context(PostgresServer())
        given = Given(
            broker.bootstrap,
            database.create_database("bench"),
            _orders(chosen),
            {"interval_s": chosen.interval, "directory": str(Path(chosen.cache) / "connectors")},
            chosen,
        )
        if any(part in OF_ORDERS for part in parts):
            for topic, count in (given.orders["check"], given.orders["orders"]):
                progress.print(f"{count:,} orders into topic {topic}")
                Orders(count, chosen.keys).send(broker.bootstrap, topic)
        for part in parts:
            PARTS[part](bench, given)
    for label, reason in bench.failures.items():
        print(f"Failed: {label}: {reason}")
    return 1 if bench.failures else 0


def _orders(chosen: argparse.Namespace) -> dict[str, Any]:
    rows = max(8_000, round(chosen.rows * chosen.scale))
    return {
        "check": ["check", max(2_000, rows // 8)],
        "orders": ["orders", rows],
        "keys": chosen.keys,
        "rounds": chosen.rounds,
        "rows_per_batch": max(1_000, round(chosen.rows_per_batch * chosen.scale)),
    }


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.connectors",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    add("--scale", type=float, default=1.0, help="multiply times and sizes (default 1)")
    add("--rows", type=int, default=4_000_000, help="orders in the topic (default 4000000)")
    add("--keys", type=int, default=FEW_KEYS, help="customers (default 10000)")
    add("--rows-per-batch", type=int, default=400_000, help="of a micro-batch (default 400000)")
    add("--rounds", type=int, default=2, help="runs of each kind, alternating (default 2)")
    add("--interval", type=float, default=2.0, help="seconds between checkpoints (default 2)")
    add("--rate", type=float, default=1000.0, help="records per second, for visible (default 1000)")
    add("--seconds", type=float, default=40.0, help="measured, for visible (default 40)")
    add("--warm-up", type=float, default=20.0, help="seconds before those (default 20)")
    add("--parallelism", type=int, default=os.cpu_count() or 2, help="subtasks (default: cores)")
    add("--driver-memory", default="2g", help="heap of every JVM (default 2g)")
    add("--timeout", type=float, default=900, help="seconds a process may take (default 900)")
    add("--cache", type=Path, default=default_cache(), help="directory of checkpoints and logs")
    add("--results", type=Path, default=RESULTS, help="where the JSON goes")
    chosen = parser.parse_args(arguments)
    for part in chosen.parts:
        if part not in PARTS:
            parser.error(f"unknown part {part!r}; choose from {', '.join(PARTS)}")
    return chosen


if __name__ == "__main__":
    # Leave by an exception, so that the processes of a run are ended too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
