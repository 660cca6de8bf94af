"""Run the benchmark of exchanges: `python -m benchmarks.exchange`.

The count per key, with records in segment files from stage to stage and with Spark's shuffle, on
one host, for large micro-batches and for small ones. All runs share a process and a JVM and take
turns. `--scale 0.01` makes the large ones a hundred times smaller, to see that it works.

Tables go to stdout as markdown, progress to stderr, raw numbers into a JSON file.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from benchmarks.bench import RESULTS, Bench
from benchmarks.job import TaskJob
from benchmarks.memory import MemorySampler
from benchmarks.penstock_keyed import configuration, steady, updates
from benchmarks.plan import FEW_KEYS
from benchmarks.process import Runner
from benchmarks.report import Sheet
from benchmarks.results import machine_facts
from benchmarks.workload import Workload, default_cache
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.discard import DiscardingSink

EXCHANGES = ("channel", "shuffle")
GOAL = 0.6
LARGE, SMALL = 1_000_000, 1_000


def jobs(
    sizes: Sequence[tuple[int, int]], rounds: int, parallelism: int, cache: Path
) -> Iterator[TaskJob]:
    for rows, batches in sizes:
        yield TaskJob(
            "exchange:run",
            {
                "rows": rows,
                "batches": batches,
                "rounds": rounds,
                "files": parallelism,
                "cache": str(cache),
            },
        )


def run(rows: int, batches: int, rounds: int, files: int, cache: str) -> dict[str, Any]:
    """Measure both exchanges in turns; say how fast each run was."""
    workload = Workload(FEW_KEYS, rows, batches, files, cache)
    workload.generate()
    for exchange in EXCHANGES:
        _measure(exchange, workload)
    found = []
    # A, B, B, A: what gets slower or faster with time falls on both.
    for number in range(2 * rounds):
        exchange = EXCHANGES[number % 4 in (1, 2)]
        one = _measure(exchange, workload)
        print(f"{exchange}: {one['rows'] / one['seconds']:,.0f} rows/s", flush=True)
        found.append({"exchange": exchange, **one})
    return {"runs": found}


def _measure(exchange: str, workload: Workload) -> dict[str, Any]:
    config = configuration(workload, "hashmap")
    config.set_string("penstock.exchange", exchange)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    updates(env, str(workload.directory)).sink_to(DiscardingSink())
    with MemorySampler() as memory:
        reports = env.execute("count per key").get_micro_batches()
    return asdict(steady(reports, workload, memory))


def sheet(measured: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> Sheet:
    rows = []
    for given, found in measured:
        rates: dict[str, list[float]] = {exchange: [] for exchange in EXCHANGES}
        each: dict[str, list[float]] = {exchange: [] for exchange in EXCHANGES}
        for one in found["runs"]:
            rates[one["exchange"]].append(one["rows"] / one["seconds"])
            # The first micro-batch is not in the time.
            each[one["exchange"]].append(one["seconds"] / (one["micro_batches"] - 1))
        channel, shuffle = (median(rates[exchange]) for exchange in EXCHANGES)
        rows.append(
            [
                f"{given['rows']:,}",
                f"{channel:,.0f} ({median(each['channel']):.2f} s)",
                f"{shuffle:,.0f} ({median(each['shuffle']):.2f} s)",
                f"{shuffle / channel:.2f}",
            ]
        )
    columns = (
        "rows per micro-batch",
        "channel: rows/s (s per micro-batch)",
        "shuffle: rows/s (s per micro-batch)",
        f"shuffle / channel (goal: {GOAL:g})",
    )
    return Sheet("The count per key by exchange, on one host", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parse(arguments)
    runner = Runner(
        Path(chosen.cache) / "jobs", chosen.parallelism, chosen.driver_memory, chosen.timeout
    )
    bench = Bench("exchange", runner, chosen.results, Console(stderr=True, highlight=False))
    print(", ".join(f"{name} {value}" for name, value in machine_facts().items()) + "\n")
    sizes = [(max(SMALL, round(LARGE * chosen.scale)), chosen.large), (SMALL, chosen.small)]
    planned = list(jobs(sizes, chosen.rounds, chosen.parallelism, chosen.cache))
    measured = bench.run_all("keyed", planned, lambda given: f"{given['rows']:,} rows")
    bench.save("keyed", measured)
    bench.show(sheet(measured))
    for label, reason in bench.failures.items():
        print(f"Failed: {label}: {reason}")
    return 1 if bench.failures else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.exchange",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--scale", type=float, default=1.0, help="of large micro-batches (default 1)")
    add("--large", type=int, default=9, help="large micro-batches of a run (default 9)")
    add("--small", type=int, default=41, help="small micro-batches of a run (default 41)")
    add("--rounds", type=int, default=2, help="runs of each exchange (default 2)")
    add("--parallelism", type=int, default=os.cpu_count() or 2, help="subtasks (default: cores)")
    add("--driver-memory", default="4g", help="heap of every JVM (default 4g)")
    add("--timeout", type=float, default=900, help="seconds a process may take (default 900)")
    add("--cache", type=Path, default=default_cache(), help="directory of input and logs")
    add("--results", type=Path, default=RESULTS, help="where the JSON goes")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    # Leave by an exception, so that the processes of a run are ended too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
