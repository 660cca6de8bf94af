"""Run the benchmarks of checkpoints and recovery: `python -m benchmarks.checkpoints [PART ...]`.

Parts: `throughput` (with a checkpoint every 5 s beside without), `cost` (bytes and seconds by the
size of the state and by how much changes, incremental beside full, and where the time goes) and
`recovery` (after a failure and after a killed driver). Without a part all of them run, about 60
minutes; `--quick` runs everything with tiny sizes in some minutes.

Tables go to stdout as markdown, progress to stderr, raw numbers into a JSON file per part.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.bench import RESULTS, Bench
from benchmarks.checkpoints import cost, recovery, throughput
from benchmarks.checkpoints.measured import series_of
from benchmarks.plan import FEW_KEYS, MANY_KEYS
from benchmarks.process import Runner
from benchmarks.results import machine_facts
from benchmarks.workload import default_cache

BACKENDS = ("hashmap", "rocksdb")


def run_throughput(bench: Bench, chosen: argparse.Namespace) -> None:
    options = throughput.ThroughputOptions(
        backends=chosen.backends,
        keys=chosen.keys,
        rounds=chosen.rounds,
        seconds=chosen.seconds,
        warm_up=chosen.warm_up,
        interval_s=chosen.interval,
        rows_per_batch=chosen.rows_per_batch,
        parallelism=chosen.parallelism,
        cache=chosen.cache,
    )
    measured = bench.run_all("throughput", list(throughput.jobs(options)), _throughput_title)
    bench.save("throughput", measured)
    bench.show(throughput.sheet(measured))


def run_cost(bench: Bench, chosen: argparse.Namespace) -> None:
    options = cost.CostOptions(
        backends=chosen.backends,
        megabytes=chosen.megabytes or cost.MEGABYTES,
        shares=chosen.shares,
        value_bytes=chosen.value_bytes,
        settling=chosen.settling,
        rounds=chosen.checkpoints,
        directory=chosen.cache / "state",
    )
    measured = bench.run_all("cost", list(cost.jobs(options)), _cost_title)
    bench.save("cost", measured)
    series = [series_of(given, result) for given, result in measured]
    for sheet in cost.sheets(series):
        bench.show(sheet)
    for backend in options.backends:
        drawn = cost.chart(series, backend)
        if drawn is not None:
            path = Path(chosen.charts) / f"checkpoint-cost-{backend}.svg"
            path.write_text(drawn)
            bench.progress.print(f"drawn in {path}", markup=False)


def run_recovery(bench: Bench, chosen: argparse.Namespace) -> None:
    options = recovery.RecoveryOptions(
        backends=chosen.backends,
        megabytes=chosen.megabytes or recovery.MEGABYTES,
        largest_hashmap=chosen.largest_hashmap,
        value_bytes=chosen.value_bytes,
        rounds=chosen.recoveries,
        directory=chosen.cache / "state",
    )
    cases = list(recovery.cases(options))
    measured = []
    for number, case in enumerate(cases, 1):
        label = (
            f"[{number}/{len(cases)}] recovery: {case.shape.backend}, "
            f"{case.shape.megabytes:,.0f} MB"
        )
        found = bench.attempt(label, partial(recovery.measure, case, bench.runner))
        if found is not None:
            measured.append((case, found))
    bench.save("recovery", [[vars(case.shape), found] for case, found in measured])
    bench.show(recovery.sheet(measured))


PARTS = {"throughput": run_throughput, "cost": run_cost, "recovery": run_recovery}


def _throughput_title(given: dict[str, Any]) -> str:
    interval = given["interval_s"]
    how = "no checkpoints" if interval is None else f"a checkpoint every {interval:g} s"
    return f"{given['backend']}, {given['keys']:,} keys, {how}"


def _cost_title(given: dict[str, Any]) -> str:
    return f"{given['backend']}, {given['variant']}, {given['megabytes']:,.0f} MB"


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parse(arguments)
    runner = Runner(
        Path(chosen.cache) / "jobs", chosen.parallelism, chosen.driver_memory, chosen.timeout
    )
    bench = Bench("checkpoints", runner, chosen.results, Console(stderr=True, highlight=False))
    print(", ".join(f"{name} {value}" for name, value in machine_facts().items()) + "\n")
    for part in chosen.parts or PARTS:
        PARTS[part](bench, chosen)
    for label, reason in bench.failures.items():
        print(f"Failed: {label}: {reason}")
    return 1 if bench.failures else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.checkpoints",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    add("--quick", action="store_true", help="tiny sizes: does it all work?")
    add("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    add("--megabytes", type=float, nargs="+", help="sizes of the state (cost, recovery)")
    add("--value-bytes", type=int, default=1000, help="bytes of state per key (default 1000)")
    add("--shares", type=float, nargs="+", default=list(cost.SHARES), help="of the keys, changed")
    add("--checkpoints", type=int, default=8, help="incremental ones at 1 %% (default 8)")
    add("--settling", type=int, default=3, help="checkpoints not counted (default 3)")
    add("--recoveries", type=int, default=3, help="of each kind, per state (default 3)")
    add("--largest-hashmap", type=float, default=1000.0, help="MB, for recovery (default 1000)")
    add("--keys", type=int, nargs="+", default=[FEW_KEYS, MANY_KEYS], help="for throughput")
    add("--rounds", type=int, default=2, help="of throughput, alternating (default 2)")
    add("--seconds", type=float, default=60.0, help="that a rate is taken over (default 60)")
    add("--warm-up", type=float, default=10.0, help="seconds before those (default 10)")
    add("--interval", type=float, default=5.0, help="seconds between checkpoints (default 5)")
    add("--rows-per-batch", type=int, default=500_000, help="for throughput (default 500000)")
    add("--parallelism", type=int, default=os.cpu_count() or 2, help="subtasks (default: cores)")
    add("--driver-memory", default="4g", help="heap of every JVM (default 4g)")
    add("--timeout", type=float, default=1800, help="seconds a process may take (default 1800)")
    add("--cache", type=Path, default=default_cache(), help="directory of inputs, state and logs")
    add("--results", type=Path, default=RESULTS, help="where the JSON goes")
    add("--charts", type=Path, default=None, help="where pictures go (default: beside the JSON)")
    chosen = parser.parse_args(arguments)
    for part in chosen.parts:
        if part not in PARTS:
            parser.error(f"unknown part {part!r}; choose from {', '.join(PARTS)}")
    if chosen.quick:
        _make_quick(chosen)
    chosen.charts = chosen.charts or chosen.results
    return chosen


def _make_quick(chosen: argparse.Namespace) -> None:
    chosen.megabytes = chosen.megabytes or [2.0, 5.0]
    chosen.settling = min(chosen.settling, 1)
    chosen.checkpoints = min(chosen.checkpoints, 2)
    chosen.recoveries = 1
    chosen.shares = [0.01, 1.0]
    chosen.keys = [1_000]
    chosen.rounds = 1
    chosen.seconds, chosen.warm_up, chosen.interval = 6.0, 2.0, 1.0
    chosen.rows_per_batch = 20_000


if __name__ == "__main__":
    # Leave by an exception, so that the processes of a run are ended too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
