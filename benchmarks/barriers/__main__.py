"""Run the benchmarks of stages and barriers: `python -m benchmarks.barriers [PART ...]`.

Parts: `latency` (of a hop from stage to stage, beside a micro-batch of a streaming query),
`four-stages` (with a checkpoint every 2 s beside without) and `backlog` (aligned beside unaligned
checkpoints when a slow step is downstream). Without a part all of them run, about 10 minutes;
`--scale 0.1` makes everything ten times as short, to see that it works.

Tables go to stdout as markdown, progress to stderr, raw numbers into a JSON file per part.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.barriers import backlog, four_stages, latency
from benchmarks.bench import RESULTS, Bench
from benchmarks.plan import FEW_KEYS
from benchmarks.process import Runner
from benchmarks.results import machine_facts
from benchmarks.workload import default_cache

BACKENDS = ("hashmap", "rocksdb")


def run_latency(bench: Bench, chosen: argparse.Namespace) -> None:
    options = latency.LatencyOptions(
        rate=chosen.rate,
        steps=3,
        seconds=chosen.seconds * chosen.scale,
        warm_up=chosen.warm_up * chosen.scale,
        parallelism=chosen.parallelism,
    )
    measured = bench.run_all("latency", list(latency.jobs(options)), _latency_title)
    bench.save("latency", measured)
    for sheet in latency.sheets(measured):
        bench.show(sheet)


def run_four_stages(bench: Bench, chosen: argparse.Namespace) -> None:
    options = four_stages.FourStagesOptions(
        backends=chosen.backends,
        keys=chosen.keys,
        rounds=chosen.rounds,
        seconds=chosen.seconds * chosen.scale,
        warm_up=chosen.warm_up * chosen.scale,
        interval_s=chosen.interval,
        rows_per_batch=max(1000, round(chosen.rows_per_batch * chosen.scale)),
        directory=chosen.cache / "four-stages",
    )
    measured = bench.run_all(
        "four-stages", list(four_stages.jobs(options)), lambda given: str(given["backend"])
    )
    bench.save("four-stages", measured)
    bench.show(four_stages.sheet(measured))


def run_backlog(bench: Bench, chosen: argparse.Namespace) -> None:
    options = backlog.BacklogOptions(
        steps=chosen.steps,
        batch_s=chosen.slow_batch * chosen.scale,
        checkpoints=max(1, round(chosen.checkpoints * chosen.scale)),
        parallelism=chosen.parallelism,
        directory=chosen.cache / "backlog",
    )
    measured = bench.run_all(
        "backlog", list(backlog.jobs(options)), lambda given: f"{given['steps']} steps"
    )
    bench.save("backlog", measured)
    bench.show(backlog.sheet(measured))


PARTS = {"latency": run_latency, "four-stages": run_four_stages, "backlog": run_backlog}


def _latency_title(given: dict[str, Any]) -> str:
    at = f"{given['rate']:g} records/s"
    return f"{given['steps']} hops at {at}" if "steps" in given else f"streaming query at {at}"


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parse(arguments)
    runner = Runner(
        Path(chosen.cache) / "jobs", chosen.parallelism, chosen.driver_memory, chosen.timeout
    )
    bench = Bench("barriers", runner, chosen.results, Console(stderr=True, highlight=False))
    print(", ".join(f"{name} {value}" for name, value in machine_facts().items()) + "\n")
    for part in chosen.parts or PARTS:
        PARTS[part](bench, chosen)
    for label, reason in bench.failures.items():
        print(f"Failed: {label}: {reason}")
    return 1 if bench.failures else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.barriers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    add("--scale", type=float, default=1.0, help="multiply times and sizes (default 1)")
    add("--rate", type=float, default=200.0, help="records per second, for latency (default 200)")
    add("--seconds", type=float, default=30.0, help="measured per run (default 30)")
    add("--warm-up", type=float, default=20.0, help="seconds before those (default 20)")
    add("--backends", nargs="+", choices=BACKENDS, default=["hashmap"], help="for four-stages")
    add("--keys", type=int, default=FEW_KEYS, help="for four-stages (default 10000)")
    add("--rounds", type=int, default=2, help="of four-stages, alternating (default 2)")
    add("--interval", type=float, default=2.0, help="seconds between checkpoints (default 2)")
    add("--rows-per-batch", type=int, default=200_000, help="for four-stages (default 200000)")
    add("--steps", type=int, default=5, help="the last one slow, for backlog (default 5)")
    add("--slow-batch", type=float, default=0.5, help="seconds its micro-batch takes (default 0.5)")
    add("--checkpoints", type=int, default=8, help="of each kind, for backlog (default 8)")
    add("--parallelism", type=int, default=os.cpu_count() or 2, help="subtasks (default: cores)")
    add("--driver-memory", default="4g", help="heap of every JVM (default 4g)")
    add("--timeout", type=float, default=900, help="seconds a process may take (default 900)")
    add("--cache", type=Path, default=default_cache(), help="directory of state and logs")
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
