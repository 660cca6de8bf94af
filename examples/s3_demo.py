"""The demo of `make demo-s3`: the job of `make demo` on two hosts that share nothing but S3.

Checkpoints and output are in S3. The driver is killed twice, and once a host with all that is on
it, and the S3 server, a real one on this machine. The server keeps every object as a file, so this
program can watch the job without asking the server.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

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
from two_hosts import DRIVER_HOST, HOSTS, TwoHosts, two_hosts

from penstock.testing.servers.s3_server import S3Server

BUCKET = "orders"
SECONDS_DOWN = 2
BEFORE_THE_STORE, BEFORE_THE_HOST = 3, 6  # checkpoints


class HostsWatch(Watch):
    """Prints what happens to the job, and kills the S3 server and a host."""

    def __init__(self, directory: Path, store: S3Server, hosts: TwoHosts) -> None:
        super().__init__(directory)
        self._checkpoints = directory
        self._store = store
        self._hosts = hosts
        self._to_kill = [(BEFORE_THE_STORE, self._kill_store), (BEFORE_THE_HOST, self._kill_host)]

    def print_news(self) -> None:
        super().print_news()
        if self._to_kill and len(checkpoints(self._checkpoints)) > self._to_kill[0][0]:
            self._to_kill.pop(0)[1]()

    def describe_recovery(self, recovery: dict[str, Any]) -> str:
        return f"attempt {recovery['attempt']} resumes from checkpoint {recovery['checkpoint']}"

    def _kill_store(self) -> None:
        pid = self._store.pid
        self._store.kill()
        self.print(f"[red bold]kill -9 {pid}[/], the S3 server")
        time.sleep(SECONDS_DOWN)
        self._store.start()
        self.print(f"[yellow]the S3 server is back after {SECONDS_DOWN} s[/]")

    def _kill_host(self) -> None:
        host = HOSTS[0]
        pid = self._hosts.kill_host(host)
        self.print(f"[red bold]kill -9 {pid}[/], everything on host {host}")
        time.sleep(SECONDS_DOWN)
        self._hosts.start_host(host)
        self.print(f"[yellow]host {host} is back[/]")


def main() -> int:
    console.print(
        "[bold]The job of `make demo` on two hosts that share nothing but a bucket of S3.[/] "
        "Its driver will be\nkilled with -9 twice, the S3 server once, and a host once.\n"
    )
    console.print(f"$ penstock run --supervise examples/orders.py s3://{BUCKET}\n")
    with temporary_directory() as directory, S3Server(directory / "s3") as store:
        bucket = store.create_bucket(BUCKET)
        for name in ("checkpoints", "finished"):
            (directory / name).symlink_to(bucket / name)
        # As on hosts of AWS: neither the program nor the settings name credentials.
        os.environ |= {
            "AWS_ENDPOINT_URL": store.endpoint,
            "AWS_ACCESS_KEY_ID": store.access_key,
            "AWS_SECRET_ACCESS_KEY": store.secret_key,
            "AWS_REGION": "us-east-1",
        }
        with two_hosts(directory / "hosts") as hosts:
            settings = on(hosts)
            output = f"s3://{BUCKET}"
            with running_job(orders.__file__, directory, output=output, more=settings) as job:
                watch_and_kill(job, directory, HostsWatch(directory, store, hosts))
                return report(directory) if has_ended_well(job, directory) else 1


def on(hosts: TwoHosts) -> dict[str, str]:
    return {
        "spark.master": hosts.master,
        "spark.driver.host": DRIVER_HOST,
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "10s",
    }


if __name__ == "__main__":
    sys.exit(main())
