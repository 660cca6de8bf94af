"""The demo of `make demo-s3`: the job of `make demo` with its checkpoints in S3.

Its driver is killed twice, and so is the S3 server, a real one on this machine. The server keeps
every object as a file, so this program can watch the checkpoints without asking the server.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import orders
from demo import (
    Watch,
    checkpoints,
    console,
    has_ended_well,
    report,
    running_job,
    temporary_directory,
    watch_and_kill,
)

from penstock.testing.servers.s3_server import S3Server

BUCKET = "orders"
SECONDS_DOWN = 2


class StoreWatch(Watch):
    """Prints what happens to the job, and kills the S3 server once."""

    def __init__(self, directory: Path, store: S3Server) -> None:
        super().__init__(directory)
        self._checkpoints = directory
        self._store = store
        self._is_killed = False

    def print_news(self) -> None:
        super().print_news()
        if not self._is_killed and len(checkpoints(self._checkpoints)) > 2 * SECONDS_DOWN:
            self._is_killed = True
            pid = self._store.pid
            self._store.kill()
            self.print(f"[red bold]kill -9 {pid}[/], the S3 server")
            time.sleep(SECONDS_DOWN)
            self._store.start()
            self.print(f"[yellow]the S3 server is back after {SECONDS_DOWN} s[/]")


def main() -> int:
    console.print(
        "[bold]The job of `make demo` with its checkpoints in S3.[/] Its driver will be killed "
        "with -9\ntwice, the S3 server once.\n"
    )
    location = f"s3://{BUCKET}/checkpoints"
    console.print(f"$ penstock run --supervise examples/orders.py DIRECTORY {location}\n")
    with temporary_directory() as directory, S3Server(directory / "s3") as store:
        bucket = store.create_bucket(BUCKET)
        (directory / "checkpoints").symlink_to(bucket / "checkpoints")
        # As on a host of AWS: neither the program nor the settings name credentials.
        os.environ |= {
            "AWS_ENDPOINT_URL": store.endpoint,
            "AWS_ACCESS_KEY_ID": store.access_key,
            "AWS_SECRET_ACCESS_KEY": store.secret_key,
            "AWS_REGION": "us-east-1",
        }
        with running_job(orders.__file__, directory, location) as job:
            watch_and_kill(job, directory, StoreWatch(directory, store))
            return report(directory) if has_ended_well(job, directory) else 1


if __name__ == "__main__":
    sys.exit(main())
