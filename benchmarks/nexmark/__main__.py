"""Run NEXMark: `python -m benchmarks.nexmark [QUERY ...]`.

Queries q1, q2, q3, q5, q7, q8, q11 and q18 on penstock (hashmap and rocksdb), on PyFlink in thread
mode, which gets a separate venv, and in Spark's own operators. Every engine reads the same
events. Its answer on a small input is compared with a plain Python program's before it is timed on
the large one. Without a query all of them run; `--quick` runs everything with tiny sizes, to see
that it works.

The table goes to stdout as markdown (`--json`: everything as JSON), progress to stderr, raw numbers
into a JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.bench import RESULTS, Bench
from benchmarks.nexmark import plan, tables
from benchmarks.process import Runner
from benchmarks.results import machine_facts
from benchmarks.workload import default_cache

QUICK_EVENTS = 60_000


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parse(arguments)
    options = plan.Options(
        queries=chosen.queries or plan.QUERIES,
        engines=chosen.only or list(plan.ENGINES),
        rounds=1 if chosen.quick else chosen.rounds,
        events=QUICK_EVENTS if chosen.quick else chosen.events,
        events_per_batch=QUICK_EVENTS // 3 if chosen.quick else chosen.events_per_batch,
        rate=chosen.rate,
        parallelism=chosen.parallelism,
        cache=str(chosen.cache),
    )
    progress = Console(stderr=True, highlight=False)
    runner = Runner(
        chosen.cache / "jobs", options.parallelism, chosen.driver_memory, chosen.timeout
    )
    bench = Bench("nexmark", runner, chosen.results, progress)
    runs = _run(bench, options)
    bench.save("queries", [run.as_json() for run in runs])
    if chosen.json:
        document = {"machine": machine_facts(), "runs": [run.as_json() for run in runs]}
        print(json.dumps({**document, "failures": bench.failures}, indent=2))
    else:
        print(", ".join(f"{name} {value}" for name, value in machine_facts().items()) + "\n")
        bench.show(tables.sheet(runs))
        for label, reason in bench.failures.items():
            print(f"Failed: {label}: {reason}")
    return 1 if bench.failures else 0


def _run(bench: Bench, options: plan.Options) -> list[plan.Run]:
    requests = list(plan.requests(options))
    done = []
    for events in (options.check, options.workload):
        bench.progress.print(f"{events.count:,} events in {events.directory}", markup=False)
        events.generate()
    for number, one in enumerate(requests, 1):
        label = f"[{number}/{len(requests)}] round {one.round}, {one.query}: {one.engine.title}"
        found = bench.attempt(label, partial(bench.runner.run, one.job, one.name))
        if found is None:
            continue
        run = plan.Run(one.query, one.engine.name, one.round, found)
        bench.progress.print(f"      {run.events_per_second:,.0f} events/s")
        done.append(run)
    return done


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("queries", nargs="*", metavar="QUERY", help=f"of {', '.join(plan.QUERIES)} (default: all)")
    add("--only", action="append", choices=list(plan.ENGINES), help="this engine (repeatable)")
    add("--quick", action="store_true", help="tiny sizes: does it all work?")
    add("--rounds", type=int, default=2, help="times each engine runs, alternating (default 2)")
    add("--events", type=int, default=1_600_000, help="events in all (default 1600000)")
    add("--events-per-batch", type=int, default=400_000, help="of a micro-batch (default 400000)")
    add("--rate", type=int, default=10_000, help="events per second of event time (default 10000)")
    add("--parallelism", type=int, default=os.cpu_count() or 2, help="subtasks (default: cores)")
    add("--driver-memory", default="4g", help="heap of every JVM of Spark (default 4g)")
    add("--timeout", type=float, default=600, help="seconds a process may take (default 600)")
    add("--cache", type=Path, default=default_cache(), help="where events, logs and venvs are kept")
    add("--results", type=Path, default=RESULTS, help="where the JSON goes")
    add("--json", action="store_true", help="print JSON in place of the table")
    chosen = parser.parse_args(arguments)
    for query in chosen.queries:
        if query not in plan.QUERIES:
            parser.error(f"unknown query {query!r}; choose from {', '.join(plan.QUERIES)}")
    return chosen


if __name__ == "__main__":
    # Leave by an exception, so that the processes of a run are ended too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
