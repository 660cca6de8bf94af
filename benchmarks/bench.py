"""One run of a benchmark with several parts: starts jobs, and prints and writes the results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.job import TaskJob
from benchmarks.process import JobFailedError, Runner
from benchmarks.report import Sheet, markdown_sheet
from benchmarks.results import machine_facts

RESULTS = Path(__file__).with_name("results")

Measured = list[tuple[dict[str, Any], dict[str, Any]]]
"""The jobs of a run, with the answer of each."""


@dataclass
class Bench:
    """Tables go to stdout as markdown, progress elsewhere, raw numbers into a file per part."""

    name: str
    runner: Runner
    results: Path
    progress: Console
    failures: dict[str, str] = field(default_factory=dict)

    def attempt(self, label: str, measure: Callable[[], Any]) -> Any | None:
        """Measure one thing; a failure is reported at the end and stops nothing else."""
        self.progress.print(label, markup=False)
        began = time.monotonic()
        try:
            found = measure()
        except JobFailedError as error:
            self.failures[label] = str(error)
            self.progress.print(f"      failed: {error}", markup=False)
            return None
        self.progress.print(f"      {time.monotonic() - began:.0f} s in all")
        return found

    def run_all(
        self, part: str, jobs: Sequence[TaskJob], title: Callable[[dict[str, Any]], str]
    ) -> Measured:
        """Run jobs one after the other, a process for each; those that failed are left out."""
        measured = []
        for number, job in enumerate(jobs, 1):
            label = f"[{number}/{len(jobs)}] {part}: {title(job.given)}"
            name = f"{self.name}-{part}-{number}"
            found = self.attempt(label, partial(self.runner.run, job, name))
            if found is not None:
                measured.append((job.given, found))
        return measured

    def save(self, part: str, measured: Any) -> None:
        path = self.results / f"{self.name}-{part}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"machine": machine_facts(), "measured": measured, "failures": self.failures}
        path.write_text(json.dumps(document, indent=2, default=str) + "\n")
        self.progress.print(f"written to {path}", markup=False)

    def show(self, sheet: Sheet) -> None:
        if sheet.rows:
            print(markdown_sheet(sheet) + "\n", flush=True)
