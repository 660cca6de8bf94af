"""The driver's ear: requests that others left in the job's directory."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

from penstock.checkpoint.store import Completed
from penstock.common.metric_figures import MetricInfo
from penstock.errors import PenstockError
from penstock.job.channel_view import ChannelView
from penstock.recovery.control import (
    Answer,
    Cancel,
    Channels,
    Checkpoint,
    Control,
    Metrics,
    Request,
    RequestId,
    Savepoint,
    Stop,
)

logger = logging.getLogger("penstock.job")

_POLL_S = 0.25


class Controlled(Protocol):
    """What can be asked of a running job."""

    def cancel(self) -> None:
        """End between micro-batches."""
        ...

    def checkpoint(self) -> Future[Completed]:
        """Take a checkpoint now."""
        ...

    def savepoint(self, directory: Path | None) -> Future[Completed]:
        """Write a savepoint and go on."""
        ...

    def stop(self, directory: Path | None, *, drain: bool) -> Future[Completed]:
        """Write a savepoint and end."""
        ...

    def channels(self) -> ChannelView | None:
        """Return the channels, None if the job is not running now."""
        ...

    def metrics(self) -> list[MetricInfo]:
        """Return what functions measured."""
        ...


class Requests:
    """Takes up requests while the job runs, each one once, and answers when it is done."""

    def __init__(self, control: Control, job: Controlled) -> None:
        self._control = control
        self._job = job
        self._taken: set[RequestId] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="requests", daemon=True)

    def start(self) -> None:
        """Begin to listen; what a dead driver left open is answered first."""
        self._control.give_up()
        self._thread.start()

    def close(self) -> None:
        """Stop listening; what is still open is answered."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for request, _ in self._control.pending():
            self._reply(request, Answer(False, "the job ended before it was done"))

    def _run(self) -> None:
        while not self._stop.wait(_POLL_S):
            try:
                for id_, request in self._control.pending():
                    if id_ not in self._taken:
                        self._taken.add(id_)
                        self._take(id_, request)
            except OSError as error:
                logger.warning("requests to this job cannot be read: %s", error)

    def _take(self, id_: RequestId, request: Request) -> None:
        try:
            match request:
                case Cancel():
                    self._job.cancel()
                    self._reply(id_, Answer(True, "the job is being cancelled"))
                    return
                case Channels():
                    self._reply(id_, _channels(self._job.channels()))
                    return
                case Metrics():
                    measured = self._job.metrics()
                    self._reply(id_, Answer(True, f"{len(measured)} metrics", metrics=measured))
                    return
                case Checkpoint():
                    done = self._job.checkpoint()
                case Savepoint(path):
                    done = self._job.savepoint(None if path is None else Path(path))
                case Stop(drain, path):
                    done = self._job.stop(None if path is None else Path(path), drain=drain)
        except PenstockError as error:
            self._reply(id_, Answer(False, str(error)))
            return
        done.add_done_callback(lambda result: self._reply(id_, _answer(result)))

    def _reply(self, id_: RequestId, answer: Answer) -> None:
        try:
            self._control.reply(id_, answer)
        except OSError as error:
            logger.warning("a request to this job cannot be answered: %s", error)


def _channels(view: ChannelView | None) -> Answer:
    if view is None:
        return Answer(False, "the job is not running now: it is between two attempts")
    facts = view.facts()
    return Answer(True, f"{len(facts)} channels", channels=facts)


def _answer(result: Future[Completed]) -> Answer:
    error = result.exception()
    if error is not None:
        return Answer(False, str(error))
    completed = result.result()
    return Answer(True, str(completed), completed.path)
