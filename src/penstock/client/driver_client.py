"""Sends requests to the driver of a running job and waits for its answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.client.job_overview import JobOverview, job_name, overview
from penstock.common.text.elapsed import ago, duration
from penstock.recovery.control import Answer, Control, Request
from penstock.recovery.lease import Alive, Dead, Silent, driver_status

_POLL_S = 0.05
_POLL_STORE_S = 0.5


class DriverClient:
    """Sends one request to one driver; `on_wait` is called with what it waits for, and how long."""

    def __init__(
        self,
        directory: JobDir,
        heartbeat_timeout_s: float,
        timeout_s: float | None = None,
        on_wait: Callable[[str, float], None] = lambda what, waited_s: None,
    ) -> None:
        self._directory = directory
        self._name = job_name(directory)
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._timeout_s = timeout_s
        self._on_wait = on_wait
        self._started = time.monotonic()
        self._poll_s = _POLL_S if isinstance(directory.path, Path) else _POLL_STORE_S

    def request(self, request: Request) -> Answer:
        """Return the driver's answer, or one that says why there is none."""
        if (problem := self.missing_driver()) is not None:
            return Answer(False, problem)
        control = Control(self._directory)
        id_ = control.submit(request)
        while (answer := control.answer(id_)) is None:
            if self._is_timed_out():
                limit = duration(self._timeout_s or 0)
                message = (
                    f"No answer from job {self._name!r} within {limit}; the job may still "
                    "carry out the request."
                )
                return Answer(False, message)
            problem = self.missing_driver()
            # The driver may have answered and ended between the two looks.
            if problem is not None and (answer := control.answer(id_)) is None:
                return Answer(False, f"{problem} Check the job before you send the request again.")
            if answer is None:
                self._wait("start" if self._is_initializing() else "answer")
        return answer

    def await_end(self) -> JobOverview:
        """Wait until no driver runs the job; return its status then."""
        while not self._is_timed_out() and isinstance(self._driver_status(), Alive):
            self._wait("end")
        return self._overview()

    def missing_driver(self) -> str | None:
        """Return why no driver can answer; None if one is running the job."""
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
                why = f"its status is {self._overview().status}"
        return f"No driver is running job {self._name!r}: {why}."

    def _is_initializing(self) -> bool:
        status = self._driver_status()
        return isinstance(status, Alive) and status.owner.initializing

    def _driver_status(self) -> object:
        return driver_status(self._directory, self._heartbeat_timeout_s, time.time())

    def _overview(self) -> JobOverview:
        return overview(self._directory, self._heartbeat_timeout_s, time.time())

    def _is_timed_out(self) -> bool:
        return self._timeout_s is not None and time.monotonic() - self._started > self._timeout_s

    def _wait(self, what: str) -> None:
        self._on_wait(what, time.monotonic() - self._started)
        time.sleep(self._poll_s)
