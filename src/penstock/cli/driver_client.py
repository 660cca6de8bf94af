"""Sends requests to the driver of a running job and waits for its answers."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from penstock.cli.job_overview import JobOverview
from penstock.cli.options import SelectedJob
from penstock.cli.output import ago, duration
from penstock.recovery.control import Answer, Control, Request
from penstock.recovery.lease import Alive, Dead, Silent, driver_status

_POLL_S = 0.05
_POLL_STORE_S = 0.5
_SHOW_EVERY_S = 0.5


class DriverClient:
    """Sends one request to one driver; on a terminal it shows how long the answer takes."""

    def __init__(self, job: SelectedJob, timeout_s: float | None) -> None:
        self._job = job
        self._timeout_s = timeout_s
        self._started = time.monotonic()
        self._shown = 0.0
        self._poll_s = _POLL_S if isinstance(job.directory.path, Path) else _POLL_STORE_S

    def request(self, request: Request) -> Answer:
        """Return the driver's answer, or one that says why there is none."""
        if (problem := self._missing_driver()) is not None:
            return Answer(False, problem)
        control = Control(self._job.directory)
        id_ = control.submit(request)
        while (answer := control.answer(id_)) is None:
            if self._is_timed_out():
                limit = duration(self._timeout_s or 0)
                message = (
                    f"No answer from job {self._job.name!r} within {limit}; the job may still "
                    "carry out the request."
                )
                return Answer(False, message)
            problem = self._missing_driver()
            # The driver may have answered and ended between the two looks.
            if problem is not None and (answer := control.answer(id_)) is None:
                return Answer(False, f"{problem} Check the job before you send the request again.")
            if answer is None:
                self._wait("start" if self._is_initializing() else "answer")
        self._clear()
        return answer

    def await_end(self) -> JobOverview:
        """Wait until no driver runs the job; return its status then."""
        while not self._is_timed_out() and isinstance(self._driver_status(), Alive):
            self._wait("end")
        self._clear()
        return self._job.overview()

    def _missing_driver(self) -> str | None:
        match self._driver_status():
            case Alive():
                return None
            case Dead(owner, since) | Silent(owner, since) as status:
                what = "died, and" if isinstance(status, Dead) else "is silent, and"
                why = (
                    f"its driver (process {owner.pid} on {owner.host}) {what} its last heartbeat "
                    f"was {ago(since, time.time())}"
                )
            case _:
                why = f"its status is {self._job.overview().status}"
        return f"No driver is running job {self._job.name!r}: {why}."

    def _is_initializing(self) -> bool:
        status = self._driver_status()
        return isinstance(status, Alive) and status.owner.initializing

    def _driver_status(self) -> object:
        return driver_status(self._job.directory, self._job.heartbeat_timeout_s, time.time())

    def _is_timed_out(self) -> bool:
        return self._timeout_s is not None and time.monotonic() - self._started > self._timeout_s

    def _wait(self, what: str) -> None:
        waited = time.monotonic() - self._started
        if sys.stderr.isatty() and waited - self._shown >= _SHOW_EVERY_S:
            self._shown = waited
            message = f"waiting for the {what} of job {self._job.name!r}: {duration(waited)}"
            click.echo(f"\r\033[K{message}", err=True, nl=False)
        time.sleep(self._poll_s)

    def _clear(self) -> None:
        if self._shown:
            click.echo("\r\033[K", err=True, nl=False)
            self._shown = 0.0
