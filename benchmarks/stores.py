"""What checkpoints to S3 cost beside plain uploads: `python -m benchmarks.stores`.

A job with a large state takes full and incremental checkpoints to a real S3 server on this
machine. Around each full one, as many processes as the job has tasks upload as many bytes with
the same client and nothing else, to the same disk. At the end the state is restored, beside plain
downloads. Rounds alternate; a ratio is plain seconds by penstock's seconds of one round.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.checkpoints.large_state import PIECES, LargeState, StateShape
from penstock.checkpoint.history import CheckpointStats
from penstock.common.storage_url import StorageUrl
from penstock.storage.storages import storage_at
from penstock.testing.servers.s3_server import S3Server

TASKS = 2
FILE_MB = 32
MB = 1_000_000
CHANGED = 0.01
BUCKET = "bench"
console = Console(highlight=False, width=110)
progress = Console(stderr=True, highlight=False)


def upload(url: StorageUrl, files: int) -> None:
    """Upload files of random bytes, as one task of a job does."""
    storage, block = storage_at(url), os.urandom(MB)
    for number in range(files):
        storage.write(f"file-{number}", (block for _ in range(FILE_MB)))


def download(url: StorageUrl, files: int) -> None:
    """Download these files to a disk."""
    storage = storage_at(url)
    with tempfile.TemporaryDirectory() as directory:
        for number in range(files):
            with Path(directory, str(number)).open("wb") as file:
                for piece in storage.stream(f"file-{number}"):
                    file.write(piece)


def in_processes(
    pool: multiprocessing.pool.Pool,
    work: Callable[[StorageUrl, int], None],
    url: StorageUrl,
    megabytes: float,
) -> float:
    """Return how long as many processes as the job has tasks take for so many bytes."""
    files = max(1, round(megabytes / FILE_MB / TASKS))
    started = time.perf_counter()
    pool.starmap(work, [(url / str(task), files) for task in range(TASKS)], chunksize=1)
    seconds = time.perf_counter() - started
    return seconds * megabytes / (files * FILE_MB * TASKS)


def settings_of(server: S3Server, directory: Path, incremental: bool) -> Mapping[str, str]:
    return {
        **{f"penstock.storage.{key}": value for key, value in server.options().items()},
        "execution.checkpointing.incremental": str(incremental).lower(),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "penstock.work-dir": str(directory / "work"),
        "penstock.state.local-dir": str(directory / "local"),
        "parallelism.default": str(TASKS),
        "spark.master": f"local[{TASKS},4]",
    }


class Bench:
    def __init__(self, server: S3Server, directory: Path, megabytes: float, backend: str) -> None:
        self._server = server
        self._directory = directory
        self._shape = StateShape(backend, megabytes)
        self._place = server.url(BUCKET, "checkpoints")
        self._plain = server.url(BUCKET, "plain")
        self._pool = multiprocessing.get_context("spawn").Pool(TASKS)
        self.ratios: list[float] = []
        self.rows: list[tuple[str, ...]] = []

    def run(self, rounds: int) -> None:
        in_processes(self._pool, upload, self._plain, FILE_MB * TASKS)
        full = self._checkpoints(rounds, incremental=False)
        changed = self._checkpoints(rounds, incremental=True)
        share = median(changed) / median(full)
        self.rows.append(("incremental by full bytes", f"{share:.1%}", "", ""))

    def _job(self, *, incremental: bool) -> LargeState:
        settings = settings_of(self._server, self._directory, incremental)
        return LargeState(self._shape, self._place, settings)

    def _checkpoints(self, rounds: int, *, incremental: bool) -> list[float]:
        """Return the bytes of each checkpoint after the first."""
        name = "incremental" if incremental else "full"
        job = self._job(incremental=incremental)
        sizes = []
        try:
            job.build()
            job.checkpoint()
            for number in range(rounds):
                plain = 0.0
                if not incremental:
                    plain = in_processes(self._pool, upload, self._plain, self._shape.megabytes)
                record = self._checkpoint(job)
                sizes.append(record.new_bytes / MB)
                ratio = plain / record.duration_s * sizes[-1] / self._shape.megabytes
                row = (
                    f"{name} {number + 1}",
                    f"{record.duration_s:.2f} s, {sizes[-1]:,.1f} MB",
                    f"{plain:.2f} s" if plain else "",
                    f"{ratio:.2f}" if plain else "",
                )
                progress.print(*row)
                self.rows.append(row)
                if plain:
                    self.ratios.append(ratio)
        finally:
            job.suspend() if incremental else job.cancel()
        if incremental:
            self._restore(rounds)
        return sizes

    def _checkpoint(self, job: LargeState) -> CheckpointStats:
        """Change some keys, and take a checkpoint whose barrier comes with the last of them."""
        records = round(self._shape.keys * CHANGED)
        end = job.change(records)
        job.wait_until_planned(end - records // PIECES)
        record, _ = job.checkpoint()
        job.wait_until_processed(end)
        return record

    def _restore(self, rounds: int) -> None:
        for number in range(rounds):
            plain = in_processes(self._pool, download, self._plain, self._shape.megabytes)
            job = self._job(incremental=True)
            try:
                recovery = job.recoveries()[-1]
            finally:
                job.suspend()
            seconds = recovery.load_state_s
            row = f"restore {number + 1}", f"{seconds:.2f} s", f"{plain:.2f} s"
            progress.print(*row, f"{plain / seconds:.2f}")
            self.rows.append((*row, f"{plain / seconds:.2f}"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", default="rocksdb")
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        S3Server(Path(directory, "s3")) as server,
    ):
        server.create_bucket(BUCKET)
        bench = Bench(server, Path(directory), chosen.megabytes, chosen.backend)
        bench.run(chosen.rounds)
    title = f"{chosen.backend}, {chosen.megabytes:,.0f} MB of state, {TASKS} tasks"
    table = Table("", "penstock", "plain", "plain / penstock", title=title)
    for row in bench.rows:
        table.add_row(*row)
    console.print(table)
    low, high = min(bench.ratios), max(bench.ratios)
    console.print(
        f"full checkpoints: {median(bench.ratios):.2f} of plain ({low:.2f} to {high:.2f})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
