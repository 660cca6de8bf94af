"""State of a running job after its last micro-batch: its driver is asked."""

from __future__ import annotations

import threading

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.client.driver_client import DriverClient
from penstock.errors import StateUnavailableError
from penstock.recovery.control import ReadState
from penstock.redaction import redact
from penstock.serve.http.answers import RestError
from penstock.serve.queryable.statuses import rest_error, status_of
from penstock.snapshots.queries.query import RunningState, StateQuery

MOST_AT_ONCE = 8
"""Each waits for a driver; more are refused."""
_TIMEOUT_S = 5.0
_BUSY = "the server is waiting for drivers as often as it can: ask again"


class LatestStates:
    """Asks drivers; any thread may call."""

    def __init__(self, heartbeat_timeout_s: float, timeout_s: float = _TIMEOUT_S) -> None:
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._timeout_s = timeout_s
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)

    def read(self, job: JobDir, query: StateQuery) -> RunningState:
        """Return the answer of a job's driver.

        Raises:
            RestError: no driver answers, or it cannot.
        """
        if not self._free.acquire(blocking=False):
            raise RestError(503, _BUSY)
        try:
            client = DriverClient(job, self._heartbeat_timeout_s, self._timeout_s)
            answer = client.request(ReadState(query))
        finally:
            self._free.release()
        if answer.ok and answer.state is not None:
            return answer.state
        if answer.state is not None and (status := status_of(answer.state.error)) != 503:
            raise RestError(status, redact(answer.message))
        raise rest_error(StateUnavailableError(job.key, answer.message))
