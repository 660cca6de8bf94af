"""The keyed count with a checkpoint every few seconds beside the same job without.

A run has a fixed duration; its input would last longer. The rate is that of the keyed
step's micro-batches after a warm-up: their records over the time from the publication of the one
before the first of them to that of the last.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.job import TaskJob
from benchmarks.penstock_keyed import KEYED_STEP, configuration, updates
from benchmarks.report import DASH, Sheet
from benchmarks.running_job import RunningJob
from benchmarks.workload import Workload
from penstock.checkpoint.history import CheckpointStats, CheckpointStatus
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.discard import DiscardingSink
from penstock.job.reports import MicroBatchReport

JOB_ID = "throughput"
BATCHES = 16
"""Micro-batches of words that are really different; links repeat them."""


@dataclass(frozen=True)
class ThroughputOptions:
    """What the command line decides."""

    backends: Sequence[str]
    keys: Sequence[int]
    rounds: int
    seconds: float
    warm_up: float
    interval_s: float
    rows_per_batch: int
    parallelism: int
    cache: Path


def jobs(options: ThroughputOptions) -> Iterator[TaskJob]:
    """With and without alternate, and change places from round to round."""
    for number in range(options.rounds):
        for keys in options.keys:
            for backend in options.backends:
                pair = (None, options.interval_s)
                for interval in pair if number % 2 == 0 else pair[::-1]:
                    yield TaskJob(
                        "checkpoints.throughput:run",
                        {
                            "backend": backend,
                            "keys": keys,
                            "interval_s": interval,
                            "seconds": options.seconds,
                            "warm_up": options.warm_up,
                            "rows_per_batch": options.rows_per_batch,
                            "parallelism": options.parallelism,
                            "cache": str(options.cache),
                        },
                    )


def run(
    backend: str,
    keys: int,
    interval_s: float | None,
    seconds: float,
    warm_up: float,
    rows_per_batch: int,
    parallelism: int,
    cache: str,
) -> dict[str, Any]:
    """Run the count for some seconds; say how fast it was, and what its checkpoints were."""
    workload = Workload(keys, rows_per_batch, BATCHES, parallelism, cache)
    workload.generate()
    directory = Path(cache) / "throughput"
    shutil.rmtree(directory, ignore_errors=True)
    repeated = _repeat(workload, directory / "words", rows=int(3_000_000 * (seconds + warm_up)))
    config = configuration(workload, backend)
    if interval_s is not None:
        config.set_string("execution.checkpointing.interval", f"{round(interval_s * 1000)} ms")
        config.set_string("execution.checkpointing.dir", str(directory / "checkpoints"))
        config.set_string("execution.checkpointing.incremental", "true")
        config.set_string("penstock.job-id", JOB_ID)
    try:
        reports, checkpoints = _measure(config, repeated, directory, seconds + warm_up)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    rows, took = steady(reports, warm_up)
    completed = [one for one in checkpoints if one.status is CheckpointStatus.COMPLETED]
    print(f"{rows / took:,.0f} rows/s, {len(completed)} checkpoints", flush=True)
    return {
        "rows": rows,
        "seconds": took,
        "checkpoints": len(completed),
        "failed": len(checkpoints) - len(completed),
        "duration_s": [one.duration_s for one in completed],
        "new_bytes": [one.new_bytes for one in completed],
        "full_bytes": [one.full_bytes for one in completed],
    }


def _measure(
    config: Configuration, words: Path, directory: Path, seconds: float
) -> tuple[list[MicroBatchReport], list[CheckpointStats]]:
    env = StreamExecutionEnvironment.get_execution_environment(config)
    updates(env, str(words)).sink_to(DiscardingSink())
    client = env.execute_async("throughput")
    job = RunningJob(client, directory / "checkpoints", JOB_ID)
    result = client.get_job_execution_result()
    end: float | None = None
    while end is None or time.time() < end:
        if result.done():
            result.result()
            msg = "the input ended before the time was over"
            raise RuntimeError(msg)
        keyed = job.reports_of(KEYED_STEP)
        if end is None and keyed:
            end = keyed[0].published + seconds
        time.sleep(0.1)
    reports, checkpoints = job.reports_of(KEYED_STEP), job.history.checkpoints()
    client.cancel()
    result.exception()
    return reports, checkpoints


def steady(reports: Sequence[MicroBatchReport], warm_up: float) -> tuple[int, float]:
    """Records and seconds of one stage's micro-batches after the warm-up."""
    begins = reports[0].published + warm_up
    before = [one for one in reports if one.published <= begins]
    counted = reports[len(before) :]
    rows = sum(one.records_in for one in counted)
    return rows, counted[-1].published - before[-1].published


def _repeat(workload: Workload, directory: Path, rows: int) -> Path:
    """Make many files out of few, by links; in the order of their names."""
    directory.mkdir(parents=True)
    paths = workload.paths()
    for number in range(-(-rows // workload.rows) * len(paths)):
        os.link(paths[number % len(paths)], directory / f"part-{number:06d}.txt")
    return directory


def sheet(measured: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> Sheet:
    """One line per backend and number of keys, medians over the rounds."""
    rows = []
    kinds = list(dict.fromkeys((given["backend"], given["keys"]) for given, _ in measured))
    for backend, keys in kinds:
        mine = [m for m in measured if (m[0]["backend"], m[0]["keys"]) == (backend, keys)]
        without = [_rate(result) for given, result in mine if given["interval_s"] is None]
        results = [result for given, result in mine if given["interval_s"] is not None]
        with_them = [_rate(result) for result in results]
        if not without or not with_them:
            continue
        durations = [s for result in results for s in result["duration_s"]]
        new = [size for result in results for size in result["new_bytes"]]
        rows.append(
            [
                f"{backend}, {keys:,} keys",
                _rates(without),
                _rates(with_them),
                f"{median(with_them) / median(without):.2f}",
                str(sum(result["checkpoints"] for result in results)),
                f"{median(durations):.2f}" if durations else DASH,
                f"{median(new) / 1e6:,.1f}" if new else DASH,
            ]
        )
    columns = (
        "count per key",
        "rows/s without",
        "rows/s with",
        "with / without",
        "checkpoints",
        "s each",
        "MB each",
    )
    intervals = {given["interval_s"] for given, _ in measured if given["interval_s"] is not None}
    every = " or ".join(f"{seconds:g} s" for seconds in sorted(intervals))
    return Sheet(f"A checkpoint every {every}", columns, rows)


def _rate(result: dict[str, Any]) -> float:
    return float(result["rows"]) / float(result["seconds"])


def _rates(rates: Sequence[float]) -> str:
    if len(rates) == 1:
        return f"{rates[0]:,.0f}"
    return f"{median(rates):,.0f} ({min(rates):,.0f}..{max(rates):,.0f})"
