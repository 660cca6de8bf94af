"""PyFlink 2.3 in thread mode with the hashmap backend and checkpoints on, in a separate venv.

Flink has no micro-batches. The steady rate leaves out as many rows as a micro-batch of this
workload would hold: it is taken from the moment that many records had been counted, over all
subtasks, until the last ones were. The JVM's start, the job's submission, the first records'
warm-up and the wait for the last checkpoint are thus left out. The Python code runs inside Flink's
JVM, so that is where its memory shows.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from benchmarks.contract import Answer, Measurement, verify_rows
from benchmarks.memory import MemorySampler
from benchmarks.workload import Workload

VERSION = "2.3.0"
PYTHON_VARIABLE = "PENSTOCK_BENCH_PYFLINK_PYTHON"
PROGRAM = Path(__file__).with_name("pyflink_program.py")


class Notes(TypedDict):
    """When a subtask had counted another `every` records, and how many it counted in all."""

    records: int
    times: list[float]
    every: int


@dataclass(frozen=True)
class PyFlinkContender:
    """The count as a PyFlink job on Flink's local cluster."""

    emits_every_update: bool = True

    def check(self, workload: Workload) -> Answer:
        return Answer(**_run(workload, "check"))

    def measure(self, workload: Workload) -> Measurement:
        with MemorySampler() as memory:
            notes = _run(workload, "time")["notes"]
        return steady(notes, workload, memory)


def steady(subtasks: Sequence[Notes], workload: Workload, memory: MemorySampler) -> Measurement:
    """The rate after as many records as one micro-batch holds, up to the last note."""
    verify_rows(sum(notes["records"] for notes in subtasks), workload)
    every = subtasks[0]["every"]
    times = sorted(when for notes in subtasks for when in notes["times"])
    left_out = math.ceil(workload.rows_per_batch / every)
    return Measurement(
        rows=(len(times) - left_out) * every,
        seconds=times[-1] - times[left_out - 1],
        micro_batches=0,
        peak_jvm_memory_mb=memory.peak_jvm_mb,
    )


def install(cache: Path) -> Path:
    """The Python that has PyFlink: the one that was named, or a venv made here once."""
    if named := os.environ.get(PYTHON_VARIABLE):
        return Path(named)
    venv = cache / f"pyflink-{VERSION}"
    python = venv / "bin" / "python"
    ready = venv / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        quiet = ["install", "--quiet", "--disable-pip-version-check"]
        wanted = [f"apache-flink=={VERSION}", "setuptools<81"]
        subprocess.run([str(python), "-m", "pip", *quiet, *wanted], check=True)
        ready.touch()
    return python


def _run(workload: Workload, mode: str) -> dict[str, Any]:
    python = install(Path(workload.cache))
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        result = Path(directory, "result.json")
        arguments = [str(workload.directory), str(workload.files_per_batch), mode, str(result)]
        # The interpreter inside Flink's JVM does not know that it belongs to a venv.
        outside = {**os.environ, "PYTHONPATH": site_packages(python)}
        subprocess.run([str(python), str(PROGRAM), *arguments], check=True, env=outside)
        answer: dict[str, Any] = json.loads(result.read_text())
    return answer


def site_packages(python: Path) -> str:
    command = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


CONTENDER = PyFlinkContender()
