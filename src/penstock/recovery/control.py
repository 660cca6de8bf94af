"""Requests of clients to a running driver, and its answers: files in the job's directory.

A request is one file, its answer another one with the same id, created only if absent: so every
request has at most one answer. A driver that dies leaves its requests open, and the next driver
rejects them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import PurePosixPath

import msgspec

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.common.channel_info import ChannelInfo
from penstock.common.metric_values import MetricInfo

RequestId = str
_REQUEST = ".request.json"
_ANSWER = ".answer.json"
_ANSWERS_KEPT_S = 3600.0


class Savepoint(msgspec.Struct, frozen=True, tag=True):
    """Write a savepoint, below a directory or the configured one."""

    path: str | None = None


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Write a savepoint and end the job; with `drain`, as if all sources had ended."""

    drain: bool = False
    path: str | None = None


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """End the job without a savepoint."""


class Checkpoint(msgspec.Struct, frozen=True, tag=True):
    """Trigger a checkpoint."""


class Channels(msgspec.Struct, frozen=True, tag=True):
    """Return what waits in the channels."""


class Metrics(msgspec.Struct, frozen=True, tag=True):
    """Return the metrics of functions."""


Request = Savepoint | Stop | Cancel | Checkpoint | Channels | Metrics


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request; `path` is that of the checkpoint or savepoint, if there is one."""

    ok: bool
    message: str
    path: str | None = None
    channels: list[ChannelInfo] | None = None
    metrics: list[MetricInfo] | None = None


class _RequestFile(msgspec.Struct, frozen=True):
    request: Request
    time: float


class _AnswerFile(msgspec.Struct, frozen=True):
    answer: Answer
    time: float


class Control:
    """The requests to one job, for clients and for the driver."""

    def __init__(self, job_dir: JobDir, clock: Callable[[], float] = time.time) -> None:
        self._storage = job_dir.storage
        self._directory = job_dir.control.name
        self._clock = clock

    def submit(self, request: Request) -> RequestId:
        """Write a request for the driver."""
        now = self._clock()
        # Ids sort by time, so that requests are handled in the order they were made.
        id_ = f"{int(now * 1_000_000):020d}-{uuid.uuid4().hex[:8]}"
        data = msgspec.json.encode(_RequestFile(request, now))
        self._storage.create(self._path(id_, _REQUEST), data)
        return id_

    def answer(self, request: RequestId) -> Answer | None:
        """Return the answer to a request, None if there is none yet."""
        try:
            data = self._storage.read(self._path(request, _ANSWER))
        except FileNotFoundError:
            return None
        return msgspec.json.decode(data, type=_AnswerFile).answer

    def pending(self) -> list[tuple[RequestId, Request]]:
        """Return the requests without an answer, oldest first; called by the driver.

        Requests that this driver cannot read are answered at once.
        """
        found = []
        for id_ in self._unanswered():
            try:
                data = self._storage.read(self._path(id_, _REQUEST))
                found.append((id_, msgspec.json.decode(data, type=_RequestFile).request))
            except msgspec.DecodeError as error:
                self.reply(id_, Answer(False, f"this driver cannot read the request: {error}"))
            except FileNotFoundError:
                continue
        return found

    def reply(self, request: RequestId, answer: Answer) -> bool:
        """Answer a request; False, and nothing changes, if it has an answer already."""
        answered = _AnswerFile(answer, self._clock())
        try:
            self._storage.create(self._path(request, _ANSWER), msgspec.json.encode(answered))
            is_first = True
        except FileExistsError:
            is_first = False
        self._storage.delete(self._path(request, _REQUEST))
        self._delete_old_answers()
        return is_first

    def reject_abandoned(self) -> list[RequestId]:
        """Reject all requests that an older driver left open.

        Called once by a new driver, before it handles requests of its own.
        """
        left = self._unanswered()
        for id_ in left:
            message = (
                "the driver died before it answered this; the request may have been carried "
                "out or not: look at the job's checkpoints, then ask again"
            )
            self.reply(id_, Answer(False, message))
        return left

    def _unanswered(self) -> list[RequestId]:
        answered = set(self._ids(_ANSWER))
        return [id_ for id_ in self._ids(_REQUEST) if id_ not in answered]

    def _delete_old_answers(self) -> None:
        oldest = self._clock() - _ANSWERS_KEPT_S
        for id_ in self._ids(_ANSWER):
            path = self._path(id_, _ANSWER)
            try:
                answer = msgspec.json.decode(self._storage.read(path), type=_AnswerFile)
                is_old = answer.time < oldest
            except FileNotFoundError:
                continue
            except msgspec.DecodeError:
                is_old = True
            if is_old:
                # The answer last: without it the request would be open again.
                self._storage.delete(self._path(id_, _REQUEST))
                self._storage.delete(path)

    def _ids(self, suffix: str) -> list[RequestId]:
        names = (PurePosixPath(path).name for path in self._storage.list(self._directory))
        return [name.removesuffix(suffix) for name in names if name.endswith(suffix)]

    def _path(self, request: RequestId, suffix: str) -> str:
        return f"{self._directory}/{request}{suffix}"
