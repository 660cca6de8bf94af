"""Start a job's process, wait for it, read what it measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from benchmarks.job import Job, write_spec
from benchmarks.settings import environment


class JobFailedError(Exception):
    """A contender's process ended without a result."""


@dataclass(frozen=True)
class Started:
    """A job's process; at the end of the `with` it is killed with all it started."""

    process: subprocess.Popen[bytes]
    log: Path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _end(self.process)

    def check(self) -> None:
        """Raise if it has ended."""
        if self.process.poll() is not None:
            self.fail(_reason(self.log))

    def fail(self, reason: str) -> NoReturn:
        msg = f"{reason}; see {self.log}"
        raise JobFailedError(msg)


@dataclass(frozen=True)
class Runner:
    """How and where job processes run."""

    directory: Path
    parallelism: int
    driver_memory: str
    timeout: float
    jars: str = ""
    """For Spark, besides its own; with commas."""

    def run(self, job: Job, label: str) -> dict[str, Any]:
        """Run a job in a fresh process and return what it wrote."""
        with self.start(job, label) as started:
            try:
                code = started.process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                started.fail(f"no result after {self.timeout:.0f} s")
            if code:
                started.fail(_reason(started.log))
        measured: dict[str, Any] = json.loads(self._file(label, "result.json").read_text())
        return measured

    def start(self, job: Job, label: str) -> Started:
        """Start a job in a fresh process."""
        self.directory.mkdir(parents=True, exist_ok=True)
        spec, result, log = (
            self._file(label, kind) for kind in ("spec.json", "result.json", "log")
        )
        write_spec(job, spec)
        result.unlink(missing_ok=True)
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.job", str(spec), str(result)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    **environment(self.parallelism, self.driver_memory, self.jars),
                },
                start_new_session=True,
            )
        return Started(process, log)

    def _file(self, label: str, kind: str) -> Path:
        return self.directory / f"{label}.{kind}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process with its JVM and workers, which share its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _reason(log: Path) -> str:
    """The last line of a log that names an error."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    named = [line for line in lines if "Error" in line or "Exception" in line]
    return (named or lines or ["no output"])[-1][:300]
