"""The demo of `make demo-barriers`: a job with aligned checkpoints, then with unaligned ones.

The job is `priced_orders.py`, with more orders than its last step can process. The durations are
from the history of the job, which `penstock checkpoints` shows too. The driver of the second job is
killed with -9 while records are in flight. Finally the finished files are compared with what was
sent; none of penstock's code is used for that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import AbstractContextManager, suppress
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any

import priced_orders
from demo import (
    VerificationResult,
    Watch,
    checkpoints,
    console,
    finished,
    has_ended_well,
    read_driver,
    recoveries,
    running_job,
    temporary_directory,
)
from rich.box import SIMPLE_HEAD
from rich.table import Table

UNALIGNED = "execution.checkpointing.unaligned.enabled"
BACKLOG_BYTES = 175 << 10
TIMES_SHORTER = 10

Checkpoint = dict[str, Any]


def main() -> int:
    console.print(INTRODUCTION)
    with temporary_directory() as directory:
        aligned = Run(directory / "aligned", "false")
        unaligned = Run(directory / "unaligned", "true")
        console.print(ALIGNED_INTRODUCTION)
        with aligned.job(orders=10 * priced_orders.ORDERS) as job:
            if not aligned.watch_backlog(job, enough=1):
                return aligned.gave_up(job)
        console.print(UNALIGNED_INTRODUCTION)
        with unaligned.job(orders=priced_orders.ORDERS) as job:
            if not unaligned.watch_backlog(job, enough=3):
                return unaligned.gave_up(job)
            unaligned.kill_driver()
            while unaligned.is_running(job):
                pass
            if not has_ended_well(job, unaligned.directory):
                return 1
        is_shorter = compare(aligned, unaligned)
        return 0 if is_exact(unaligned.directory) and is_shorter else 1


# -- a job --------------------------------------------------------------------------------------


class WatchBarriers(Watch):
    def figures(self, checkpoint: Checkpoint) -> str:
        return (
            f"{checkpoint['barriers']}: alignment {alignment_s(checkpoint):.2f} s, "
            f"blocked {checkpoint['bytes_held']:,} bytes, "
            f"in flight {in_flight(checkpoint):,} records"
        )


class Run:
    def __init__(self, directory: Path, unaligned: str) -> None:
        directory.mkdir()
        self.directory = directory
        self.unaligned = unaligned
        self.all: list[Checkpoint] = []
        self.under_backlog: list[Checkpoint] = []

    def job(self, orders: int) -> AbstractContextManager[subprocess.Popen[bytes]]:
        console.print(
            f"$ penstock run --supervise -D {UNALIGNED}={self.unaligned} \\\n"
            f"    examples/priced_orders.py DIRECTORY {orders}\n"
        )
        self._watch = WatchBarriers(self.directory)
        settings = {UNALIGNED: self.unaligned}
        return running_job(priced_orders.__file__, self.directory, str(orders), more=settings)

    def watch_backlog(self, job: subprocess.Popen[bytes], enough: int) -> bool:
        """Print what happens until enough checkpoints have completed under a backlog."""
        since = None
        while self.is_running(job) and len(self.under_backlog) < enough:
            if since is None and (waiting := self.waiting_bytes()) >= BACKLOG_BYTES:
                since = time.time()
                self._watch.print(f"backlog: {waiting / 1024:.0f} KiB of records wait")
            self.all = checkpoints(self.directory)
            if since is not None:
                self.under_backlog = [c for c in self.all if c["triggered"] >= since]
        return len(self.under_backlog) >= enough

    def gave_up(self, job: subprocess.Popen[bytes]) -> int:
        if has_ended_well(job, self.directory):
            say(False, "the job ended before there was a backlog")
        return 1

    def is_running(self, job: subprocess.Popen[bytes]) -> bool:
        """Print the news; return whether the job is running."""
        time.sleep(0.1)
        self._watch.print_news()
        return job.poll() is None

    def waiting_bytes(self) -> int:
        """Return the size of the records in the channels, which are directories of files."""
        total = 0
        with suppress(FileNotFoundError):  # files are deleted when they were read
            for path in (self.directory / "work").glob("*/*/channels/*/*.arrow"):
                with suppress(FileNotFoundError):
                    total += path.stat().st_size
        return total

    def kill_driver(self) -> None:
        driver = read_driver(self.directory)
        if driver is not None:
            os.kill(driver["pid"], signal.SIGKILL)
            self._watch.print(f"[red bold]kill -9 {driver['pid']}[/], the driver")


# -- figures ------------------------------------------------------------------------------------


def alignment_s(checkpoint: Checkpoint) -> float:
    stats = [s for operator in checkpoint["operators"] for s in operator["stats"]]
    return max((s["alignment_s"] for s in stats), default=0.0)


def in_flight(checkpoint: Checkpoint) -> int:
    """Return how many in-flight records a checkpoint holds."""
    channels = [c for operator in checkpoint["operators"] for c in operator["channels"]]
    return sum(channel["in_flight_records"] for channel in channels)


def compare(aligned: Run, unaligned: Run) -> bool:
    """Show both side by side; return whether unaligned ones were as short as expected."""
    table = Table("", box=SIMPLE_HEAD)
    for mode in ("aligned", "unaligned"):
        for column in ("took", "alignment", "blocked", "in flight"):
            table.add_column(f"{mode}\n{column}", justify="right")
    for number, pair in enumerate(zip_longest(aligned.all, unaligned.all), start=1):
        table.add_row(str(number), *cells(pair[0]), *cells(pair[1]))
    console.print(table)
    console.print(FIGURES)
    long, short = (
        float(median(c["duration_s"] for c in run.under_backlog)) for run in (aligned, unaligned)
    )
    is_shorter = long >= TIMES_SHORTER * short
    say(
        is_shorter,
        f"under the full backlog {long:.2f} s aligned, {short:.2f} s unaligned: "
        f"{long / short:.0f} times shorter",
    )
    return is_shorter


def cells(checkpoint: Checkpoint | None) -> tuple[str, ...]:
    if checkpoint is None:
        return ("",) * 4
    return (
        f"{checkpoint['duration_s']:.2f} s",
        f"{alignment_s(checkpoint):.2f} s",
        f"{checkpoint['bytes_held'] / 1024:.1f} KiB",
        f"{checkpoint['in_flight_bytes'] / 1024:.1f} KiB",
    )


def say(is_good: bool, text: str) -> None:
    console.print(f"[{'green' if is_good else 'red'} bold]{text}[/]")


# -- verification --------------------------------------------------------------------------------


def verify(results: list[str]) -> VerificationResult:
    """Compare lines with what was sent; a line is a name, an item, a number and a price.

    The numbers of an item must be 1, 2, 3 and so on, and each line must name the last price in that
    order. Orders and prices may be processed in any order.
    """
    amounts = {"order": priced_orders.ORDERS, "price": priced_orders.PRICES}
    due = Counter(
        f"{kind}-{index},{index * 7 % priced_orders.ITEMS}"
        for kind, amount in amounts.items()
        for index in range(amount)
    )
    there = Counter(line.rsplit(",", 2)[0] for line in results)
    items: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for line in results:
        name, item, number, price = line.split(",")
        items[item].append((int(number), name, price))
    wrong = 0
    for happened in items.values():
        last = "None"
        for place, (counted, name, price) in enumerate(sorted(happened), start=1):
            last = name if name.startswith("price") else last
            wrong += counted != place or price != last
    return VerificationResult(
        events=due.total(),
        results=len(results),
        lost=(due - there).total(),
        duplicated=(there - due).total(),
        wrong=wrong,
    )


def is_exact(directory: Path) -> bool:
    """Print what was replayed and the output; return whether both are as expected."""
    in_flight_in = {c["id"]: in_flight(c) for c in checkpoints(directory)}
    replayed = sum(in_flight_in.get(r["checkpoint"], 0) for r in recoveries(directory))
    say(replayed > 0, f"{replayed:,} records in flight were replayed after the kill")
    result = verify(finished(directory))
    say(
        result.is_good,
        f"events in {result.events:,}, lines out {result.results:,}, "
        f"lost {result.lost}, duplicated {result.duplicated}, wrong {result.wrong}",
    )
    return replayed > 0 and result.is_good


INTRODUCTION = """\
[bold]Orders and new prices, joined by item, on Spark, twice.[/]
Orders arrive faster than the ledger after the join can book them, prices arrive slowly. So orders
pile up in the channels: a backlog. A checkpoint is due every two seconds.
"""

ALIGNED_INTRODUCTION = """\
[bold]First with aligned checkpoints.[/] A barrier stays after the records that were sent before it,
so it arrives when the whole backlog before it has been booked. At the join the input of the prices,
whose barrier arrived at once, is blocked until the barrier of the orders arrives.
"""

UNALIGNED_INTRODUCTION = """
This job is cancelled here.

[bold]Now with unaligned checkpoints.[/] A barrier overtakes the waiting records, and these
in-flight records become part of the checkpoint. Meanwhile the driver is killed with -9: orders
that were read but not booked yet are only in the checkpoint.
"""

FIGURES = """\
alignment: the longest time that inputs waited at their barriers; blocked: the most bytes that
waited after them; in flight: the records that barriers overtook, stored in the checkpoint
"""


if __name__ == "__main__":
    sys.exit(main())
