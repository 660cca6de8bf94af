"""How long a checkpoint takes when a slow step has a deep backlog before it.

The last of several steps takes its time for each record, so that every channel before it fills up
to its bound. An aligned checkpoint comes to its end when all of that is worked off: its barriers
wait behind it. An unaligned one overtakes it and stores it, and waits for the running micro-batch
only. The same job runs once for each kind, one after the other in one process.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.barriers.keyed_chain import Count, Step, start, step_name
from benchmarks.checkpoints.gated_source import Gate, GatedSource, gate_named
from benchmarks.job import TaskJob
from benchmarks.report import DASH, Sheet
from benchmarks.results import percentile
from benchmarks.running_job import RunningJob, wait_until

GOAL = 10.0
KEYS = 1_000
ALIGNED = "aligned"
UNALIGNED = "unaligned"
TIMED = "aligned, unaligned after 1 s"
KINDS = {
    ALIGNED: {"execution.checkpointing.unaligned.enabled": "false"},
    UNALIGNED: {"execution.checkpointing.unaligned.enabled": "true"},
    TIMED: {
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.aligned-checkpoint-timeout": "1 s",
    },
}
ROWS_PER_BATCH = 1000
DEPTH = 4
"""Micro-batches that each channel may hold."""
SETTLED_S = 2.0


@dataclass(frozen=True)
class BacklogOptions:
    """What the command line decides."""

    steps: int
    batch_s: float
    checkpoints: int
    parallelism: int
    directory: Path


def jobs(options: BacklogOptions) -> Iterator[TaskJob]:
    yield TaskJob(
        "barriers.backlog:run",
        {
            "steps": options.steps,
            "batch_s": options.batch_s,
            "checkpoints": options.checkpoints,
            "parallelism": options.parallelism,
            "directory": str(options.directory),
        },
    )


class Slow(Step):
    """Is slow for each record, like a function that calls another system."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        time.sleep(self._pause_s)
        yield value


def run(
    steps: int, batch_s: float, checkpoints: int, parallelism: int, directory: str
) -> dict[str, Any]:
    """Run the job for each kind of checkpoint; what each checkpoint took, and met on its way."""
    pause_s = batch_s * parallelism / ROWS_PER_BATCH
    chain: list[Step] = [Count() for _ in range(steps - 1)]
    chain.append(Slow(pause_s))
    found = {}
    for kind, settings in KINDS.items():
        found[kind] = _measure(chain, settings, checkpoints, parallelism, Path(directory))
        print(f"{kind}: {[round(one['duration_s'], 2) for one in found[kind]]} s", flush=True)
    return {"kinds": found}


def _measure(
    chain: Sequence[Step],
    settings: dict[str, str],
    checkpoints: int,
    parallelism: int,
    directory: Path,
) -> list[dict[str, Any]]:
    shutil.rmtree(directory, ignore_errors=True)
    name = f"backlog-{time.monotonic_ns()}"
    gate = gate_named(name)
    gate.let_through(1_000_000_000, ROWS_PER_BATCH)
    chosen = {
        "parallelism.default": str(parallelism),
        "penstock.micro-batch.initial-records": str(ROWS_PER_BATCH),
        "penstock.micro-batch.max-records": str(ROWS_PER_BATCH),
        "penstock.channel.max-micro-batches": str(DEPTH),
        # Checkpoints are enabled, and taken only on request.
        "execution.checkpointing.interval": "10 h",
        **settings,
    }
    job = start(GatedSource(KEYS, name), KEYS, chain, chosen, directory)
    moments = random.Random(7)
    last = step_name(len(chain))
    found = []
    try:
        for _ in range(checkpoints):
            _wait_until_full(job, gate, last)
            # Not always at the same moment of a micro-batch.
            time.sleep(moments.random())
            waiting = gate.planned - job.processed(last)
            record, _ = job.checkpoint()
            found.append(
                {
                    "duration_s": record.duration_s,
                    "waiting": waiting,
                    "new_bytes": record.new_bytes,
                    "slow_batch_s": job.reports_of(last)[-1].seconds,
                }
            )
    finally:
        job.cancel()
        shutil.rmtree(directory, ignore_errors=True)
    return found


def _wait_until_full(job: RunningJob, gate: Gate, last: str) -> None:
    """Wait until no more goes into the channels than comes out of them."""
    wait_until(lambda: job.processed(last) > 0, "nothing has come through")
    most, since = 0, time.monotonic()
    while time.monotonic() < since + SETTLED_S:
        waiting = gate.planned - job.processed(last)
        if waiting > most:
            most, since = waiting, time.monotonic()
        time.sleep(0.02)


def sheet(measured: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> Sheet:
    rows = []
    for _, found in measured:
        kinds = found["kinds"]
        base = _middle(kinds.get(ALIGNED, []), "duration_s")
        for kind, ones in kinds.items():
            middle = _middle(ones, "duration_s")
            if middle is None:
                continue
            durations = [one["duration_s"] for one in ones]
            rows.append(
                [
                    kind,
                    f"{middle:.2f}",
                    f"{percentile(durations, 99):.2f}",
                    f"{base / middle:.1f}" if base is not None and kind != ALIGNED else DASH,
                    f"{_middle(ones, 'waiting'):,.0f}",
                    f"{_middle(ones, 'slow_batch_s'):.2f}",
                    f"{(_middle(ones, 'new_bytes') or 0) / 1e6:,.2f}",
                    str(len(ones)),
                ]
            )
    columns = (
        "checkpoint",
        "s, median",
        "s, slowest",
        f"times as short (goal: {GOAL:g})",
        "records waiting",
        "s per slow batch",
        "MB",
        "checkpoints",
    )
    return Sheet("Checkpoints under a backlog", columns, rows)


def _middle(ones: Sequence[dict[str, Any]], name: str) -> float | None:
    return median(one[name] for one in ones) if ones else None
