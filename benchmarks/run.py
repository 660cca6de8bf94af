"""Run the benchmarks: `python -m benchmarks.run`.

Without options: throughput of a count per key at 10,000 and 1,000,000 keys, then the fixed cost of
one record; penstock beside Spark's own ways. `--pyflink` runs penstock beside PyFlink instead.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import plan
from benchmarks.contract import FixedCost, Measurement
from benchmarks.process import JobFailedError, Runner
from benchmarks.report import markdown, print_tables
from benchmarks.results import FixedCostResult, KeyedResult, Results, machine_facts
from benchmarks.workload import default_cache

LATEST = Path(__file__).with_name("results") / "latest.json"
QUICK_SCALE = 0.02
WIDTH = 110


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parse(arguments)
    options = _options(chosen)
    runner = Runner(
        Path(chosen.cache) / "jobs", options.parallelism, chosen.driver_memory, chosen.timeout
    )
    # Progress goes to stderr, so that markdown on stdout can be put into a file.
    progress = Console(stderr=True, highlight=False)
    results = Results(machine_facts())
    _run_keyed(options, runner, results, progress)
    _run_fixed_costs(options, runner, results, progress)
    results.save(chosen.output)
    if chosen.markdown:
        print(markdown(results))
    else:
        print_tables(results, Console(width=max(WIDTH, Console().width)))
    progress.print(f"written to {chosen.output}", markup=False)
    return 1 if results.failures else 0


def _run_keyed(options: plan.Options, runner: Runner, results: Results, progress: Console) -> None:
    runs = list(plan.keyed_runs(options))
    for number, run in enumerate(runs, 1):
        progress.print(
            f"[{number}/{len(runs)}] round {run.round}, {run.keys:,} keys: {run.entry.title}",
            markup=False,
        )
        run.job.check.generate()
        run.job.workload.generate()
        started = time.monotonic()
        try:
            measurement = Measurement(**runner.run(run.job, run.label))
        except JobFailedError as error:
            _failed(results, progress, run.label, error)
            continue
        entry, rows = run.entry, run.job.workload.rows_per_batch
        results.add(KeyedResult(entry.name, entry.title, run.keys, rows), measurement)
        took = time.monotonic() - started
        progress.print(f"      {measurement.rows_per_second:,.0f} rows/s ({took:.0f} s in all)")


def _run_fixed_costs(
    options: plan.Options, runner: Runner, results: Results, progress: Console
) -> None:
    for entry, job in plan.fixed_cost_jobs(options):
        progress.print(f"fixed cost, {job.records} records: {entry.title}", markup=False)
        try:
            cost = FixedCost(**runner.run(job, entry.name))
        except JobFailedError as error:
            _failed(results, progress, entry.name, error)
            continue
        results.fixed.append(FixedCostResult(entry.name, entry.title, cost))


def _failed(results: Results, progress: Console, label: str, error: JobFailedError) -> None:
    results.failures[label] = str(error)
    progress.print(f"      failed: {error}", markup=False)


def _options(chosen: argparse.Namespace) -> plan.Options:
    return plan.Options(
        keys=chosen.keys,
        rounds=1 if chosen.quick else chosen.rounds,
        records=min(chosen.records, 5) if chosen.quick else chosen.records,
        warm_up=min(chosen.warm_up, 2) if chosen.quick else chosen.warm_up,
        scale=chosen.scale * (QUICK_SCALE if chosen.quick else 1),
        parallelism=chosen.parallelism,
        cache=str(chosen.cache),
        chosen=_contenders(chosen),
    )


def _contenders(chosen: argparse.Namespace) -> Sequence[str]:
    if chosen.only:
        return list(chosen.only)
    if chosen.pyflink:
        return [plan.PENSTOCK, plan.PYFLINK]
    return [name for name in plan.NAMES if name != plan.PYFLINK]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    add = parser.add_argument
    add("--only", action="append", choices=plan.NAMES, help="run this contender (repeatable)")
    add("--pyflink", action="store_true", help="run penstock beside PyFlink, in a separate venv")
    add("--quick", action="store_true", help="tiny sizes: does it all work?")
    add("--rounds", type=int, default=2, help="times each engine runs, alternating (default 2)")
    keys = [plan.FEW_KEYS, plan.MANY_KEYS]
    add("--keys", type=int, nargs="+", default=keys, help="numbers of distinct keys")
    add("--scale", type=float, default=1.0, help="multiply the rows of every micro-batch")
    add("--records", type=int, default=40, help="records sent for the fixed cost (default 40)")
    add("--warm-up", type=int, default=10, help="records sent before those (default 10)")
    add("--parallelism", type=int, default=os.cpu_count() or 2, help="subtasks (default: cores)")
    add("--driver-memory", default="4g", help="heap of every contender's JVM (default 4g)")
    add("--timeout", type=float, default=600, help="seconds a contender may take (default 600)")
    add("--cache", type=Path, default=default_cache(), help="where words, logs and venvs are kept")
    add("--output", type=Path, default=LATEST, help="where the JSON goes")
    add("--markdown", action="store_true", help="print markdown in place of tables")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    # Leave by an exception, so that a contender's processes are ended too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
