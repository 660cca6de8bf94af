"""How long a job with a large state takes to recover, after a failure and after a killed driver.

A process builds the state, takes a checkpoint, and lets its source fail a few times: the job
restarts inside the process. Then the process is killed with its JVM, and another one is started
in its place, a few times. What took how long is what the job itself wrote down; beside it, the
time from the failure to the first micro-batch that was published after it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks.checkpoints.large_state import LargeState, StateShape
from benchmarks.checkpoints.rounds import INCREMENTAL, VARIANTS
from benchmarks.job import TaskJob
from benchmarks.process import Runner, Started
from benchmarks.report import Sheet
from penstock.checkpoint.history import Recovery
from penstock.state.local_dir import choose_local_dir

MEGABYTES = (10.0, 100.0, 1000.0)
RESTART = "failed inside the driver"
KILL = "driver killed"
SETTINGS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "0 ms",
    # How long the driver was dead counts from its last heartbeat.
    "heartbeat.interval": "1 s",
}
TIMES = ("detect_s", "redeploy_s", "load_state_s", "reset_sources_s", "reset_sinks_s")


@dataclass(frozen=True)
class RecoveryOptions:
    """What the command line decides."""

    backends: Sequence[str]
    megabytes: Sequence[float]
    largest_hashmap: float
    value_bytes: int
    rounds: int
    directory: Path


@dataclass(frozen=True)
class Case:
    """One state that is recovered again and again."""

    shape: StateShape
    rounds: int
    directory: Path

    @property
    def label(self) -> str:
        return f"recovery-{self.shape.backend}-{self.shape.megabytes:g}"


def cases(options: RecoveryOptions) -> Iterator[Case]:
    for megabytes in sorted(options.megabytes):
        for backend in options.backends:
            if backend == "hashmap" and megabytes > options.largest_hashmap:
                continue
            shape = StateShape(backend, megabytes, options.value_bytes)
            yield Case(shape, options.rounds, options.directory / "recovery")


def measure(case: Case, runner: Runner) -> list[dict[str, Any]]:
    """Run one case; the processes it starts are ended, whatever happens."""
    shutil.rmtree(case.directory, ignore_errors=True)
    case.directory.mkdir(parents=True)
    # No later process removes the files of the last one that is killed.
    local = choose_local_dir() / f"penstock-bench-{os.getpid()}"
    found: list[dict[str, Any]] = []
    try:
        killed = 0.0
        for number in range(case.rounds + 1):
            status = case.directory / f"status-{number}.json"
            job = TaskJob(
                "checkpoints.recovery:hold",
                {
                    "backend": case.shape.backend,
                    "megabytes": case.shape.megabytes,
                    "value_bytes": case.shape.value_bytes,
                    "restarts": 0 if number else case.rounds,
                    "directory": str(case.directory / "checkpoints"),
                    "work_dir": str(case.directory / "work"),
                    "local_dir": str(local),
                    "status": str(status),
                },
            )
            with runner.start(job, f"{case.label}-{number}") as process:
                answers = _await(status, process, runner.timeout)
                for one in answers:
                    if one["kind"] == KILL:
                        one["first_result_s"] = one["first_result"] - killed
                    found.append(one)
                killed = time.time()
    finally:
        shutil.rmtree(case.directory, ignore_errors=True)
        shutil.rmtree(local, ignore_errors=True)
    return found


def _await(status: Path, process: Started, timeout: float) -> list[dict[str, Any]]:
    end = time.monotonic() + timeout
    while not status.exists():
        process.check()
        if time.monotonic() > end:
            process.fail(f"no recovery after {timeout:.0f} s")
        time.sleep(0.02)
    answers: list[dict[str, Any]] = json.loads(status.read_text())
    return answers


def hold(
    backend: str,
    megabytes: float,
    value_bytes: int,
    restarts: int,
    directory: str,
    work_dir: str,
    local_dir: str,
    status: str,
) -> dict[str, Any]:
    """Build the state, fail as often as requested, write the times, and wait to be killed."""
    shape = StateShape(backend, megabytes, value_bytes)
    settings = {
        **VARIANTS[backend, INCREMENTAL],
        **SETTINGS,
        "penstock.work-dir": work_dir,
        "penstock.state.local-dir": local_dir,
    }
    is_new = not Path(directory).exists()
    job = LargeState(shape, Path(directory), settings)
    found: list[dict[str, Any]] = []
    if is_new:
        job.build()
        _checkpoint(job)
        print("built", flush=True)
    else:
        found.append(_facts(job, KILL, _first_result(job)))
    for _ in range(restarts):
        _checkpoint(job)
        known = len(job.recoveries())
        failed = time.time()
        job.gate.fail_once()
        _until(lambda known=known: len(job.recoveries()) > known)  # type: ignore[misc]
        one = _facts(job, RESTART, _first_result(job))
        found.append({**one, "first_result_s": one["first_result"] - failed})
    # The next process must find a checkpoint that is as a running job leaves it.
    _checkpoint(job)
    draft = Path(f"{status}.draft")
    draft.write_text(json.dumps(found))
    draft.rename(status)
    while True:
        time.sleep(60)
        if not Path(directory).exists():
            sys.exit("this process was not killed")


def _checkpoint(job: LargeState) -> None:
    """Take a checkpoint whose barrier meets data, as in a job that runs."""
    records = max(8, job.shape.keys // 100)
    end = job.change(records)
    job.wait_until_planned(end - records // 8)
    job.checkpoint()
    job.wait_until_planned(end)


def _first_result(job: LargeState) -> float:
    """Let some records through; return when the first of them were published."""
    known = {(one.batch, one.published) for one in job.keyed_reports()}
    job.gate.let_through(1000, 1000)
    new: list[float] = []

    def is_there() -> bool:
        job.check()
        new[:] = [
            one.published
            for one in job.keyed_reports()
            if one.records_in and (one.batch, one.published) not in known
        ]
        return bool(new)

    _until(is_there)
    return min(new)


def _facts(job: LargeState, kind: str, first_result: float) -> dict[str, Any]:
    recovery: Recovery = job.recoveries()[-1]
    print(f"{kind}: {recovery}", flush=True)
    return {"kind": kind, "first_result": first_result, **msgspec.to_builtins(recovery)}


def _until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 600
    while not is_true():
        if time.monotonic() > end:
            msg = "it did not come back within 600 s"
            raise TimeoutError(msg)
        time.sleep(0.005)


def sheet(measured: Sequence[tuple[Case, Sequence[dict[str, Any]]]]) -> Sheet:
    rows = []
    for kind in (RESTART, KILL):
        for case, found in measured:
            mine = [one for one in found if one["kind"] == kind]
            if not mine:
                continue
            times = [median(one[name] for one in mine) for name in TIMES]
            rows.append(
                [
                    f"{case.shape.backend}, {case.shape.megabytes:,.0f} MB, {kind}",
                    *(f"{seconds:.2f}" for seconds in times),
                    f"{sum(times):.2f}",
                    f"{median(one['first_result_s'] for one in mine):.2f}",
                    str(len(mine)),
                ]
            )
    columns = (
        "state",
        "detect",
        "redeploy",
        "load state",
        "reset sources",
        "reset sinks",
        "all five",
        "first result after",
        "times",
    )
    return Sheet("Recovery, seconds", columns, rows)
