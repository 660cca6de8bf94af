"""The demo of `make demo`: kills the driver of a job on Spark twice, and verifies the output.

The job is `orders.py`. This program starts it with `penstock run --supervise`, watches its files,
kills its driver, and finally compares the finished files with the orders. It uses none of
penstock's code for that.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import orders
from rich.console import Console
from rich.table import Table

KILLS = 2
CHECKPOINTS_BEFORE_A_KILL = 2

console = Console(highlight=False, width=100)

T = TypeVar("T")


def main() -> int:
    console.print(
        f"[bold]Orders of two shops, {len(sent()):,} in all, on Spark; its driver will be killed "
        f"with -9 {KILLS} times.[/]\n"
        "A keyed step adds up the total of each customer, another one numbers the orders of each "
        "region,\na sink writes them into files. Every second a checkpoint is taken. Spark takes "
        "ten seconds or more\nto start, each time.\n"
    )
    console.print("$ penstock run --supervise examples/orders.py DIRECTORY\n")
    with (
        temporary_directory() as directory,
        dashboard(directory / "checkpoints"),
        running_job(orders.__file__, directory) as job,
    ):
        watch_and_kill(job, directory)
        return report(directory) if has_ended_well(job, directory) else 1


# -- the job ------------------------------------------------------------------------------------


@contextmanager
def temporary_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        yield directory
    finally:
        # The last JVM may still be removing its files.
        deadline = time.monotonic() + 10
        while directory.exists() and time.monotonic() < deadline:
            shutil.rmtree(directory, ignore_errors=True)
            time.sleep(0.1)


@contextmanager
def running_job(
    program: str,
    directory: Path,
    *arguments: str,
    output: str = "",
    more: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    settings = {
        **(more or {}),
        "penstock.work-dir": directory / "work",
        "penstock.state.local-dir": directory / "state",
        "spark.local.dir": directory / "spark",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={directory}",
    }
    penstock = Path(sys.executable).with_name("penstock")
    command = [str(penstock), "run", "--supervise"]
    command += [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
    command += [program, output or str(directory), *arguments]
    with (directory / "log").open("wb") as log:
        job = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield job
    finally:
        if job.poll() is None:
            job.terminate()
            try:
                job.wait(30)
            except subprocess.TimeoutExpired:
                job.kill()


@contextmanager
def dashboard(checkpoints: Path) -> Iterator[None]:
    """Serve the dashboard meanwhile, and print its address; without it the job runs as well."""
    checkpoints.mkdir()
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        console.print("There is no dashboard to watch it in: pip install 'penstock[serve]'\n")
        yield
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    penstock = Path(sys.executable).with_name("penstock")
    command = [str(penstock), "serve", "--dir", str(checkpoints), "--port", str(port)]
    with (checkpoints.parent / "dashboard.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    console.print(f"Watch it in the dashboard: [bold]http://localhost:{port}[/]\n")
    try:
        yield
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()


def has_ended_well(job: subprocess.Popen[bytes], directory: Path) -> bool:
    code = job.wait()
    if code != 0:
        console.print((directory / "log").read_text(errors="replace")[-4000:], markup=False)
        console.print(f"[red bold]the job ended with exit code {code}[/]")
    return code == 0


# -- watching the job ----------------------------------------------------------------------------


class Watch:
    """Prints what happens to a job."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started = time.monotonic()
        self._printed = Counter[str]()

    def print(self, text: str) -> None:
        console.print(f"[dim]{time.monotonic() - self._started:6.1f} s[/]  {text}")

    def print_news(self) -> None:
        log = (self._directory / "log").read_text(errors="replace").splitlines()
        for line in self._new("log", log):
            if line.startswith("driver "):
                self.print(f"[yellow]supervisor: {line}[/]")
        for recovery in self._new("recoveries", recoveries(self._directory)):
            self.print(f"[yellow]{self.describe_recovery(recovery)}[/]")
        for checkpoint in self._new("checkpoints", checkpoints(self._directory)):
            self.print(
                f"[green]checkpoint {checkpoint['id']:<3}[/] {checkpoint['duration_s']:5.2f} s, "
                f"{self.figures(checkpoint)}"
            )

    def describe_recovery(self, recovery: dict[str, Any]) -> str:
        return (
            f"the driver is back (attempt {recovery['attempt']}) and resumes from "
            f"checkpoint {recovery['checkpoint']}"
        )

    def figures(self, checkpoint: dict[str, Any]) -> str:
        return (
            f"{checkpoint['new_bytes'] / 1024:5.1f} KiB new, "
            f"{checkpoint['full_bytes'] / 1024:5.1f} KiB in all; "
            f"finished files: {len(finished(self._directory)):,} orders"
        )

    def _new(self, kind: str, found: list[T]) -> list[T]:
        new = found[self._printed[kind] :]
        self._printed[kind] = len(found)
        return new


def watch_and_kill(
    job: subprocess.Popen[bytes], directory: Path, watch: Watch | None = None
) -> None:
    """Print what happens until the job has ended, and kill its driver meanwhile."""
    watch, killed, chance = watch or Watch(directory), set[str](), random.Random(7)
    while job.poll() is None:
        watch.print_news()
        driver = read_driver(directory)
        if driver is not None and driver["attempt"] not in killed and len(killed) < KILLS:
            mine = [c for c in checkpoints(directory) if c["attempt"] == driver["attempt"]]
            if len(mine) >= CHECKPOINTS_BEFORE_A_KILL:
                time.sleep(chance.uniform(0.1, 1.0))
                watch.print_news()
                os.kill(driver["pid"], signal.SIGKILL)
                killed.add(driver["attempt"])
                watch.print(f"[red bold]kill -9 {driver['pid']}[/], the driver")
        time.sleep(0.1)
    watch.print_news()


def job_file(directory: Path, pattern: str) -> list[Path]:
    return sorted((directory / "checkpoints").glob(f"*/{pattern}"))


def read_driver(directory: Path) -> dict[str, Any] | None:
    """Return the lease of the driver; None if no driver is running."""
    try:
        found: dict[str, Any] = json.loads(job_file(directory, "driver.json")[0].read_text())
    except (IndexError, FileNotFoundError):
        return None
    return found


def checkpoints(directory: Path) -> list[dict[str, Any]]:
    records = [json.loads(p.read_text()) for p in job_file(directory, "history/*.json")]
    return [record for record in records if record["status"] == "COMPLETED"]


def recoveries(directory: Path) -> list[dict[str, Any]]:
    files = job_file(directory, "history/recoveries.jsonl")
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def finished(directory: Path) -> list[str]:
    """Read the lines of all finished files; unfinished ones are in a hidden directory."""
    return [
        line
        for path in (directory / "finished").glob("[!.]*")
        if path.is_file()
        for line in path.read_text().splitlines()
    ]


# -- verification --------------------------------------------------------------------------------


@dataclass(frozen=True)
class VerificationResult:
    events: int
    results: int
    lost: int
    duplicated: int
    wrong: int

    @property
    def is_good(self) -> bool:
        return self.lost == self.duplicated == self.wrong == 0


def sent() -> list[str]:
    return [
        orders.line(shop, n) for shop, (count, _rate) in orders.SHOPS.items() for n in range(count)
    ]


def verify(ordered: list[str], results: list[str]) -> VerificationResult:
    """Compare results with orders; a result is an order, its customer's total and a number.

    From one result of a customer to the next, the total must grow by the price of the order, and
    the numbers of a region must be 1, 2, 3 and so on. Orders may be processed in any order.
    """
    due = Counter(ordered)
    there = Counter(line.rsplit(",", 2)[0] for line in results)
    totals: dict[str, list[tuple[int, int]]] = defaultdict(list)
    numbers: dict[str, list[int]] = defaultdict(list)
    for line in results:
        _, customer, region, cents, total, number = line.split(",")
        totals[customer].append((int(total), int(cents)))
        numbers[region].append(int(number))
    steps = [step for chain in totals.values() for step in pairwise([(0, 0), *sorted(chain)])]
    counts = [pair for found in numbers.values() for pair in enumerate(sorted(found), start=1)]
    return VerificationResult(
        events=len(ordered),
        results=len(results),
        lost=(due - there).total(),
        duplicated=(there - due).total(),
        wrong=sum(total != before + cents for (before, _), (total, cents) in steps)
        + sum(number != place for place, number in counts),
    )


def report(directory: Path) -> int:
    parts = ("detect", "redeploy", "load_state", "reset_sources", "reset_sinks")
    table = Table("attempt", "from", *(p.replace("_", " ") for p in parts), title="recoveries")
    for recovery in recoveries(directory):
        seconds = (f"{recovery[f'{part}_s']:.2f} s" for part in parts)
        table.add_row(recovery["attempt"], f"checkpoint {recovery['checkpoint']}", *seconds)
    console.print()
    console.print(table)
    console.print(
        "detect: from the last heartbeat of the driver to the start of the next one; redeploy: "
        "mostly the\nstart of Spark; then the state is loaded, sources are reset to the positions "
        "of the checkpoint,\nand sinks commit its output and remove later output.\n"
    )
    result = verify(sent(), finished(directory))
    color = "green" if result.is_good else "red"
    console.print(
        f"[{color} bold]events in {result.events:,}, results out {result.results:,}, "
        f"lost {result.lost}, duplicated {result.duplicated}, wrong {result.wrong}[/]\n"
    )
    console.print(EXPLANATION)
    restarts = len(recoveries(directory))
    if restarts < KILLS:
        console.print(f"[red bold]the driver was restarted {restarts} times, not {KILLS}[/]")
    return 0 if result.is_good and restarts >= KILLS else 1


EXPLANATION = """\
- A kill -9 leaves no time to write anything: everything that was restored was in the checkpoint.
- Barriers divide the streams of both shops at the same point, so totals, numbers, source positions
  and files all belong to the same orders.
- Output after the last checkpoint was in hidden files and was deleted. Output of a checkpoint got
  its final name when that checkpoint was complete, exactly once.
- Checkpoint ids are never reused: a new driver starts after all ids of the killed one.
- The verification read only the orders and the finished files, in plain Python."""


if __name__ == "__main__":
    sys.exit(main())
