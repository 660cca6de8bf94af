"""Start a job's process, wait for it, read what it measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.job import Job, write_spec
from benchmarks.settings import environment


class JobFailedError(Exception):
    """A contender's process ended without a result."""


@dataclass(frozen=True)
class Runner:
    """How and where job processes run."""

    directory: Path
    parallelism: int
    driver_memory: str
    timeout: float

    def run(self, job: Job, label: str) -> dict[str, Any]:
        """Run a job in a fresh process and return what it wrote."""
        self.directory.mkdir(parents=True, exist_ok=True)
        spec, result, log = (
            self.directory / f"{label}.{kind}" for kind in ("spec.json", "result.json", "log")
        )
        write_spec(job, spec)
        result.unlink(missing_ok=True)
        self._wait([sys.executable, "-m", "benchmarks.job", str(spec), str(result)], log)
        measured: dict[str, Any] = json.loads(result.read_text())
        return measured

    def _wait(self, command: list[str], log: Path) -> None:
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment(self.parallelism, self.driver_memory)},
                start_new_session=True,
            )
            try:
                code = process.wait(self.timeout)
            except subprocess.TimeoutExpired as error:
                msg = f"no result after {self.timeout:.0f} s; see {log}"
                raise JobFailedError(msg) from error
            finally:
                _end(process)
        if code:
            msg = f"{_reason(log)}; see {log}"
            raise JobFailedError(msg)


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
