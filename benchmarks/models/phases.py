"""Runs one job through phases of different load, interval and state, and kills its driver.

In every phase the driver is killed twice, at the end of an interval: that is when most work is
lost. The history of the job is all that is measured.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.job import TaskJob
from benchmarks.models.driver import JOB_ID
from benchmarks.models.scheduled_source import Schedule, Segment
from benchmarks.process import JobFailedError, Runner, Started
from penstock.checkpoint.history import CheckpointStats, CheckpointStatus, History, Recovery
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.ids import JobKey

_BEFORE_TRIGGER_S = 0.15


@dataclass(frozen=True)
class Phase:
    """The settings of two drivers, one after the other."""

    interval_s: float
    rate: float
    keys: int


@dataclass(frozen=True)
class Workload:
    """What stays the same in all phases."""

    backend: str
    value_bytes: int
    work: str
    micros: int
    engine: str
    checkpoints: int
    """How many of each driver, at least, before it is killed."""


@dataclass(frozen=True)
class Kill:
    """One driver, from its start until it was killed."""

    phase: int
    started: float
    killed: float


Progress = Callable[[str], None]


def run_phases(
    phases: Sequence[Phase], workload: Workload, directory: Path, runner: Runner, report: Progress
) -> dict[str, Any]:
    """Run all phases; return them with the history of the job, as JSON has it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    schedule = Schedule([])
    history = History(JobDir(directory / "checkpoints", JobKey(JOB_ID)).storage)
    checkpoints: dict[int, CheckpointStats] = {}
    kills: list[Kill] = []
    recoveries: list[Recovery] = []
    try:
        for number, phase in enumerate(phases):
            schedule = schedule.followed_by(Segment(time.time(), phase.rate, phase.keys))
            schedule.write(directory / "schedule.json")
            for turn in range(2):
                started = time.time()
                label = f"models-{workload.engine}-{workload.backend}-{number}-{turn}"
                with runner.start(_task(phase, workload, directory), label) as process:
                    _wait(process, history, phase, workload, started, runner.timeout)
                    kills.append(Kill(number, started, time.time()))
                # The history keeps a hundred; those of all phases are wanted.
                recoveries = history.recoveries()
                checkpoints.update({c.id: c for c in history.checkpoints()})
                report(_line(phase, history))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "workload": msgspec.to_builtins(workload),
        "phases": msgspec.to_builtins(list(phases)),
        "drivers": msgspec.to_builtins(kills),
        "checkpoints": msgspec.to_builtins([checkpoints[n] for n in sorted(checkpoints)]),
        "recoveries": msgspec.to_builtins(recoveries),
    }


def _task(phase: Phase, workload: Workload, directory: Path) -> TaskJob:
    return TaskJob(
        "models.driver:hold",
        {
            "directory": str(directory),
            "schedule": str(directory / "schedule.json"),
            "interval_s": phase.interval_s,
            "backend": workload.backend,
            "value_bytes": workload.value_bytes,
            "work": workload.work,
            "micros": workload.micros,
            "engine": workload.engine,
        },
    )


def _wait(
    process: Started,
    history: History,
    phase: Phase,
    workload: Workload,
    started: float,
    timeout: float,
) -> None:
    """Return at the end of an interval, once the driver has caught up and checkpointed enough."""
    end = time.monotonic() + timeout
    while True:
        process.check()
        done = [
            c
            for c in history.checkpoints()
            if c.triggered > started and c.status is CheckpointStatus.COMPLETED
        ]
        newest = [r for r in history.recoveries() if r.time > started]
        # The first driver of all recovers from nothing.
        normal = newest[-1].time + (newest[-1].caught_up_s or math.inf) if newest else started
        if sum(c.triggered > normal for c in done) >= workload.checkpoints:
            left = done[-1].triggered + phase.interval_s - _BEFORE_TRIGGER_S - time.time()
            if left > 0:
                time.sleep(left)
                return
        if time.monotonic() > end:
            msg = f"it has not caught up within {timeout:.0f} s"
            raise JobFailedError(msg)
        time.sleep(0.1)


def _line(phase: Phase, history: History) -> str:
    last = history.checkpoints()[-1]
    text = f"T {phase.interval_s:g} s, {phase.rate:,.0f}/s, {phase.keys:,} keys: "
    text += f"checkpoint {last.id} {last.duration_s:.2f} s, {last.full_bytes / 1e6:.0f} MB"
    recoveries = history.recoveries()
    return f"{text}; {recoveries[-1]}" if recoveries else text
