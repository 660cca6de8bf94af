"""Check the models against held-out runs: `python -m benchmarks.models [--quick]`.

A job goes through phases of different load, interval and state. In each its driver is killed twice,
at the end of an interval. Then the models are fitted to the history before each phase and predict
the phase; what they predict is printed beside what was measured. `--from FILE` only evaluates the
results of an earlier run; `--charts DIR` draws them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.bench import RESULTS, Bench
from benchmarks.models import charts, evaluate
from benchmarks.models.driver import COMPUTE, INLINE, SLEEP, SPARK
from benchmarks.models.phases import Phase, Workload, run_phases
from benchmarks.process import Runner
from benchmarks.results import machine_facts
from benchmarks.workload import default_cache

PHASES = (
    Phase(5.0, 1000, 20_000),
    Phase(10.0, 2000, 20_000),
    Phase(5.0, 2500, 40_000),
    Phase(20.0, 1500, 40_000),
    Phase(10.0, 1000, 80_000),
    Phase(5.0, 2000, 80_000),
)
QUICK = (Phase(2.0, 1000, 5_000), Phase(4.0, 2000, 5_000))


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parse(arguments)
    console = Console(stderr=True, highlight=False)
    runner = Runner(Path(chosen.cache) / "jobs", chosen.parallelism, "1g", chosen.timeout)
    bench = Bench("models", runner, chosen.results, console)
    if chosen.source is None:
        print(", ".join(f"{name} {value}" for name, value in machine_facts().items()) + "\n")
        workload = Workload(
            chosen.backend,
            chosen.value_bytes,
            chosen.work,
            chosen.micros,
            chosen.engine,
            chosen.checkpoints,
        )
        phases = [
            Phase(p.interval_s, p.rate * chosen.rate_factor, p.keys)
            for p in (QUICK if chosen.quick else PHASES)
        ]
        found = run_phases(
            phases,
            workload,
            Path(chosen.cache) / "models",
            runner,
            lambda line: console.print(line, markup=False),
        )
        bench.save(f"{chosen.engine}-{chosen.backend}", found)
    else:
        found = json.loads(chosen.source.read_text())["measured"]
    run = evaluate.read_run(found)
    comparison = evaluate.compare(run)
    for sheet in evaluate.sheets(comparison):
        bench.show(sheet)
    if chosen.charts is not None:
        for name, drawn in charts.draw(comparison).items():
            path = chosen.charts / f"models-{name}-{run.workload.engine}.svg"
            path.write_text(drawn)
            console.print(f"drawn in {path}", markup=False)
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="two short phases: does it all work?")
    add("--from", dest="source", type=Path, help="evaluate the results of an earlier run")
    add("--engine", choices=(SPARK, INLINE), default=SPARK, help="without Spark: inline")
    add("--rate-factor", type=float, default=1.0, help="of the rates of all phases")
    add("--backend", choices=("hashmap", "rocksdb"), default="hashmap")
    add("--work", choices=(SLEEP, COMPUTE), default=SLEEP, help="what a record takes time for")
    add("--micros", type=int, default=150, help="microseconds per record (default 150)")
    add("--value-bytes", type=int, default=1000, help="bytes of state per key (default 1000)")
    add("--checkpoints", type=int, default=4, help="of each driver, at least (default 4)")
    add("--parallelism", type=int, default=os.cpu_count() or 2, help="subtasks (default: cores)")
    add("--timeout", type=float, default=600, help="seconds a driver may take to catch up")
    add("--cache", type=Path, default=default_cache(), help="directory of state and logs")
    add("--results", type=Path, default=RESULTS, help="where the JSON goes")
    add("--charts", type=Path, default=None, help="where pictures go (default: nowhere)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    # Leave by an exception, so that the processes of a run are ended too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
