"""The results of a whole run, and their file format."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

from benchmarks.contract import FixedCost, Measurement


@dataclass
class KeyedResult:
    """All rounds of one contender at one number of keys."""

    name: str
    title: str
    keys: int
    rows_per_batch: int
    rounds: list[Measurement] = field(default_factory=list)

    @property
    def rows_per_second(self) -> float:
        return median(one.rows_per_second for one in self.rounds)

    @property
    def slowest(self) -> float:
        return min(one.rows_per_second for one in self.rounds)

    @property
    def fastest(self) -> float:
        return max(one.rows_per_second for one in self.rounds)

    @property
    def worker_mb(self) -> float | None:
        return _highest([one.peak_worker_memory_mb for one in self.rounds])

    @property
    def jvm_mb(self) -> float | None:
        return _highest([one.peak_jvm_memory_mb for one in self.rounds])


@dataclass
class FixedCostResult:
    """The fixed cost of one chain."""

    name: str
    title: str
    cost: FixedCost


@dataclass
class Results:
    """One run of the benchmark."""

    machine: dict[str, str | int | float]
    keyed: list[KeyedResult] = field(default_factory=list)
    fixed: list[FixedCostResult] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, result: KeyedResult, measurement: Measurement) -> None:
        """Add one round, to the entry that is there or to this new one."""
        for known in self.keyed:
            if (known.name, known.keys) == (result.name, result.keys):
                known.rounds.append(measurement)
                return
        result.rounds.append(measurement)
        self.keyed.append(result)

    def rate(self, keys: int, name: str) -> float | None:
        """The rate of a contender, if it ran."""
        rates = [r.rows_per_second for r in self.keyed if (r.keys, r.name) == (keys, name)]
        return rates[0] if rates else None

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        document = asdict(self)
        for entry, result in zip(document["keyed"], self.keyed, strict=True):
            entry["rows_per_second"] = result.rows_per_second
            for written, one in zip(entry["rounds"], result.rounds, strict=True):
                written["rows_per_second"] = one.rows_per_second
        path.write_text(json.dumps(document, indent=2) + "\n")


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def machine_facts() -> dict[str, str | int | float]:
    """What the numbers were measured on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count() or 1,
        "memory_gb": round(pages / 1024**3, 1),
        "load_at_start": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "java": _java(),
        "pyspark": _package("pyspark"),
        "penstock": _package("penstock"),
        "pyarrow": _package("pyarrow"),
    }


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return next(iter(shown.stderr.splitlines()), "unknown")


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _highest(marks: Sequence[float | None]) -> float | None:
    return max((mark for mark in marks if mark is not None), default=None)
