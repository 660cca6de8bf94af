"""One benchmark job in a separate process: `python -m benchmarks.job SPEC RESULT`.

A fresh process means a fresh JVM. The check comes first, so a wrong engine gets no time, and it
warms every engine up alike.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from benchmarks.contract import Contender, FixedCostContender, verify
from benchmarks.workload import Workload


@dataclass(frozen=True)
class KeyedJob:
    """Check a contender on one workload, then time it on another."""

    contender: str
    check: Workload
    workload: Workload


@dataclass(frozen=True)
class FixedCostJob:
    """Send single records through a contender's chain."""

    contender: str
    records: int
    warm_up: int


@dataclass(frozen=True)
class TaskJob:
    """Call a function of this package; what it returns must be JSON."""

    contender: str
    given: dict[str, Any]


Job = KeyedJob | FixedCostJob | TaskJob


def write_spec(job: Job, path: Path) -> None:
    path.write_text(json.dumps({"kind": type(job).__name__, **asdict(job)}))


def read_spec(path: Path) -> Job:
    spec = json.loads(path.read_text())
    kind = spec.pop("kind")
    if kind == FixedCostJob.__name__:
        return FixedCostJob(**spec)
    if kind == TaskJob.__name__:
        return TaskJob(**spec)
    return KeyedJob(spec["contender"], Workload(**spec["check"]), Workload(**spec["workload"]))


def load(where: str) -> Any:
    """Import `module:NAME` from this package; late, as not every engine is installed."""
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(f"benchmarks.{module}"), name)


def run(job: Job) -> dict[str, Any]:
    found = load(job.contender)
    if isinstance(job, FixedCostJob):
        return asdict(cast("FixedCostContender", found).measure(job.records, job.warm_up))
    if isinstance(job, TaskJob):
        returned: dict[str, Any] = found(**job.given)
        return returned
    contender = cast("Contender", found)
    answer = contender.check(job.check)
    verify(answer, job.check, every_update=contender.emits_every_update)
    print("checked", flush=True)
    return asdict(contender.measure(job.workload))


def main() -> None:
    spec, result = (Path(argument) for argument in sys.argv[1:3])
    result.write_text(json.dumps(run(read_spec(spec))))


if __name__ == "__main__":
    main()
