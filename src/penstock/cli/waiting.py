"""Connects a command to the driver of its job, and shows on a terminal how long it waits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from penstock.cli.options import SelectedJob
from penstock.cli.output import duration
from penstock.client.driver_client import DriverClient

_SHOW_EVERY_S = 0.5


@contextmanager
def driver_of(job: SelectedJob, timeout_s: float | None) -> Iterator[DriverClient]:
    """Yield a client of the job's driver; remove the line that shows the wait afterwards."""
    line = _WaitLine(job.name)
    try:
        yield DriverClient(job.directory, job.heartbeat_timeout_s, timeout_s, line.show)
    finally:
        line.clear()


class _WaitLine:
    def __init__(self, job: str) -> None:
        self._job = job
        self._shown = 0.0

    def show(self, what: str, waited_s: float) -> None:
        if sys.stderr.isatty() and waited_s - self._shown >= _SHOW_EVERY_S:
            self._shown = waited_s
            message = f"waiting for the {what} of job {self._job!r}: {duration(waited_s)}"
            click.echo(f"\r\033[K{message}", err=True, nl=False)

    def clear(self) -> None:
        if self._shown:
            click.echo("\r\033[K", err=True, nl=False)
            self._shown = 0.0
