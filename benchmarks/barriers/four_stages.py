"""A job of four stages with a checkpoint every two seconds beside the same job without.

All runs share a process and a JVM and take turns, so that both kinds get equally warm; one before
them is not counted. The rate is that of the last stage: its records after a warm-up, over the
time from the publication before the first of them to that of the last.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.barriers.keyed_chain import Count, start, step_name
from benchmarks.checkpoints.gated_source import GatedSource, gate_named
from benchmarks.checkpoints.throughput import steady
from benchmarks.job import TaskJob
from benchmarks.report import DASH, Sheet
from benchmarks.running_job import wait_until

GOAL = 0.9
STEPS = 3
"""With the source they are four stages."""


@dataclass(frozen=True)
class FourStagesOptions:
    """What the command line decides."""

    backends: Sequence[str]
    keys: int
    rounds: int
    seconds: float
    warm_up: float
    interval_s: float
    rows_per_batch: int
    directory: Path


def jobs(options: FourStagesOptions) -> Iterator[TaskJob]:
    for backend in options.backends:
        yield TaskJob(
            "barriers.four_stages:run",
            {
                "backend": backend,
                "keys": options.keys,
                "rounds": options.rounds,
                "seconds": options.seconds,
                "warm_up": options.warm_up,
                "interval_s": options.interval_s,
                "rows_per_batch": options.rows_per_batch,
                "directory": str(options.directory),
            },
        )


def run(
    backend: str,
    keys: int,
    rounds: int,
    seconds: float,
    warm_up: float,
    interval_s: float,
    rows_per_batch: int,
    directory: str,
) -> dict[str, Any]:
    """Run without and with, in turns; say how fast each run was and what its checkpoints took."""
    settings = {
        "state.backend.type": backend,
        # The same micro-batches for both, in place of sizes that follow the clock.
        "penstock.micro-batch.initial-records": str(rows_per_batch),
        "penstock.micro-batch.max-records": str(rows_per_batch),
        "penstock.micro-batch.target-duration": "10 min",
    }
    every = {
        "execution.checkpointing.interval": f"{round(interval_s * 1000)} ms",
        "execution.checkpointing.incremental": "true",
    }
    # A, B, B, A: what gets slower or faster with time falls on both.
    turns = [number % 4 in (1, 2) for number in range(2 * rounds)]
    _measure(keys, {**settings, **every}, seconds=warm_up, warm_up=0.0, directory=Path(directory))
    found = []
    for checkpointed in turns:
        chosen = {**settings, **every} if checkpointed else settings
        one = _measure(keys, chosen, seconds, warm_up, Path(directory))
        print(f"checkpoints {checkpointed}: {one['rows'] / one['seconds']:,.0f} rows/s", flush=True)
        found.append({"checkpointed": checkpointed, **one})
    return {"runs": found}


def _measure(
    keys: int, settings: dict[str, str], seconds: float, warm_up: float, directory: Path
) -> dict[str, Any]:
    shutil.rmtree(directory, ignore_errors=True)
    name = f"four-stages-{time.monotonic_ns()}"
    # More than any machine gets through.
    gate_named(name).let_through(1_000_000_000_000, 1_000_000_000)
    job = start(GatedSource(keys, name), keys, [Count()] * STEPS, settings, directory)
    last = step_name(STEPS)
    try:
        wait_until(lambda: job.processed(last) > 0, "nothing has come through")
        end = job.reports_of(last)[0].published + warm_up + seconds
        while time.time() < end or len(job.reports_of(last)) < 3:
            job.check()
            time.sleep(0.1)
        rows, took = steady(job.reports_of(last), warm_up)
        checkpoints = job.checkpoints()
    finally:
        job.cancel()
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "rows": rows,
        "seconds": took,
        "durations": [one.duration_s for one in checkpoints],
        "new_bytes": [one.new_bytes for one in checkpoints],
    }


def sheet(measured: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> Sheet:
    rows = []
    for given, found in measured:
        by_kind: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
        for one in found["runs"]:
            by_kind[one["checkpointed"]].append(one)
        without, with_them = (
            [one["rows"] / one["seconds"] for one in by_kind[kind]] for kind in (False, True)
        )
        durations = [s for one in by_kind[True] for s in one["durations"]]
        rows.append(
            [
                f"{given['backend']}, {given['keys']:,} keys, every {given['interval_s']:g} s",
                _rates(without),
                _rates(with_them),
                f"{median(with_them) / median(without):.2f}",
                str(len(durations)),
                f"{median(durations):.2f}" if durations else DASH,
            ]
        )
    columns = (
        "four stages",
        "rows/s without",
        "rows/s with",
        f"with / without (goal: {GOAL:g})",
        "checkpoints",
        "s each",
    )
    return Sheet("Four stages, with checkpoints and without", columns, rows)


def _rates(rates: Sequence[float]) -> str:
    if len(rates) == 1:
        return f"{rates[0]:,.0f}"
    return f"{median(rates):,.0f} ({min(rates):,.0f}..{max(rates):,.0f})"
