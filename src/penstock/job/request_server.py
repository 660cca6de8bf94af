"""Serves the requests that other processes leave in the job's directory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.errors import FencedError, PenstockError
from penstock.errors.base import message_of
from penstock.recovery import control
from penstock.recovery.lease import Lease
from penstock.redaction import redact
from penstock.snapshots.queries.query import RunningState, StateQuery

if TYPE_CHECKING:
    from penstock.job.job_run import JobRun

logger = logging.getLogger("penstock.job")

_POLL_S = 0.25
_POLL_STORE_S = 1.0
"""In a store every poll is a request, which costs."""


class RequestServer:
    """Polls for requests while the job runs, serves each one once, and answers when it is done."""

    def __init__(self, control: control.Control, job: JobRun, lease: Lease) -> None:
        self._control = control
        self._poll_s = _POLL_STORE_S if control.is_in_store else _POLL_S
        self._job = job
        self._served: set[str] = set()
        """Requests that are being served: their answer may take as long as a savepoint."""
        self._problem = ""
        """Why requests could not be read the last time; logged when it changes."""
        self._lease = lease
        self._reads = ThreadPoolExecutor(1, "state-reads")
        """Reading state may take long: other requests do not wait for it."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="requests", daemon=True)

    def reject_abandoned(self) -> None:
        """Reject requests that a dead driver left open.

        Called before this driver takes the lease: later ones are for this driver, and wait until
        the job runs.
        """
        try:
            self._control.reject_abandoned()
        except OSError as error:
            logger.warning("Requests that an older driver left open cannot be read: %s", error)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def close(self, why: str = "the job ended before it did so") -> None:
        """Stop polling, and reject what is still open; never raises."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._reads.shutdown(cancel_futures=True)
        for request, _ in self._pending():
            self._reply(request, control.Answer(False, why))

    def _run(self) -> None:
        while not self._stop.wait(self._poll_s):
            self._serve_new()
            self._job.close_idle_reads()

    def _serve_new(self) -> None:
        for id_, request in self._pending(self._served):
            self._served.add(id_)
            self._serve(id_, request)

    def _pending(
        self, without: Collection[str] = ()
    ) -> list[tuple[control.RequestId, control.Request]]:
        """Return the open requests except some; none if they cannot be read now."""
        try:
            self._lease.check()
            unanswered = self._control.unanswered()
            self._served.intersection_update(unanswered)
            pending = self._control.read(id_ for id_ in unanswered if id_ not in without)
        except FencedError:
            return []  # requests are for the next driver now
        except Exception as error:
            if str(error) != self._problem:
                logger.warning("Requests to this job cannot be read: %s", error)
            self._problem = str(error)
            return []
        self._problem = ""
        return pending

    def _serve(self, id_: control.RequestId, request: control.Request) -> None:
        job = self._job
        try:
            match request:
                case control.Cancel():
                    job.cancel()
                    self._reply(id_, control.Answer(True, "the job is being cancelled"))
                    return
                case control.Channels():
                    self._reply(id_, self._channels())
                    return
                case control.Metrics():
                    self._reply(id_, self._metrics())
                    return
                case control.ReadState(query):
                    self._reads.submit(self._read_state, id_, query)
                    return
                case control.Watch(seconds):
                    message = f"reports live figures for {job.watch(seconds):g} s"
                    self._reply(id_, control.Answer(True, message))
                    return
                case control.Checkpoint():
                    done = job.trigger_checkpoint()
                case control.Savepoint(path):
                    done = job.trigger_savepoint(path)
                case control.Stop(drain, path):
                    done = job.stop_with_savepoint(path, drain=drain)
        except Exception as error:
            if not isinstance(error, PenstockError):
                logger.warning("Request %s to this job failed", request, exc_info=True)
            self._reply(id_, _failed(error))
            return
        done.add_done_callback(lambda result: self._reply(id_, _answer(result)))

    def _channels(self) -> control.Answer:
        view = self._job.channel_view()
        if view is None:
            return control.Answer(False, "the job is not running now: it is between two attempts")
        facts = view.facts()
        return control.Answer(True, f"{len(facts)} channels", channels=facts)

    def _read_state(self, id_: control.RequestId, query: StateQuery) -> None:
        try:
            found = self._job.read_state(query)
            self._reply(id_, control.Answer(True, "the state was read", state=found))
        except Exception as error:
            if not isinstance(error, PenstockError):
                logger.warning("State of this job cannot be read", exc_info=True)
            state = RunningState(error=type(error).__name__)
            failed = _failed(error)
            self._reply(id_, control.Answer(False, failed.message, state=state))

    def _metrics(self) -> control.Answer:
        figures = self._job.live_figures()
        message = f"{len(figures.user)} metrics"
        return control.Answer(True, message, metrics=figures.user, figures=figures)

    def _reply(self, id_: control.RequestId, answer: control.Answer) -> None:
        try:
            # The next driver has answered what this one left open, and serves what came later.
            self._lease.check()
            self._control.reply(id_, answer)
        except FencedError as error:
            logger.warning("A request to this job is not answered: %s", error)
        except Exception as error:
            # Nothing may end the thread that serves requests, or the job's thread at its end.
            logger.warning("A request to this job cannot be answered: %s", error)


def _answer(result: Future[CompletedCheckpoint]) -> control.Answer:
    error = result.exception()
    if error is not None:
        return _failed(error)
    completed = result.result()
    return control.Answer(True, str(completed), completed.path)


def _failed(error: BaseException) -> control.Answer:
    return control.Answer(False, redact(message_of(error)))
