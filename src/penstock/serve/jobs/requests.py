"""Requests of the server's callers to the drivers of jobs, by trigger id."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.client.driver_client import DriverClient
from penstock.recovery.control import Answer, Control, Request, keyed_request
from penstock.recovery.lease import Alive
from penstock.serve.jobs.cached_job import JobView

_DIED = (
    "no driver is running the job any more; the request may have been carried out or not: look at "
    "the job's checkpoints"
)


@dataclass(frozen=True, slots=True)
class Pending:
    """The driver has not answered yet."""


class JobRequests:
    """The requests to one job.

    They are files in the job's directory, so they survive the server, and a trigger id that comes
    twice, from whatever client, makes one request.
    """

    def __init__(self, job: JobView, heartbeat_timeout_s: float) -> None:
        self._job = job
        self._control = Control(job.directory)
        self._client = DriverClient(job.directory, heartbeat_timeout_s)

    def missing_driver(self) -> str | None:
        """Return why nobody can answer; None if a driver is running the job."""
        return self._client.missing_driver()

    def submit(self, request: Request, trigger: str) -> None:
        """Write a request, unless there is one with this trigger id."""
        self._control.submit_once(request, trigger)

    def status(self, trigger: str) -> Answer | Pending | None:
        """Return what became of a request; None if there is none, or its answer is deleted."""
        id_ = keyed_request(trigger)
        answer = self._control.answer(id_)
        if answer is not None:
            return answer
        if not self._control.is_open(id_):
            # Answering creates the answer before it deletes the request.
            return self._control.answer(id_)
        if isinstance(self._job.driver, Alive):
            return Pending()
        # The driver may have answered and ended in between.
        return self._control.answer(id_) or Answer(False, _DIED)
