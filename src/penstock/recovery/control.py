"""How the command line talks to a running driver: through files in the job's directory.

A request is one file, its answer another of the same id, created only if absent. So a request is
answered once, whoever dies when: a driver that died leaves its requests open, and the next one
answers them by saying so.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import PurePosixPath

import msgspec

from penstock.checkpoint.job_dir import JobDir
from penstock.common.channel_info import ChannelInfo
from penstock.common.metric_figures import MetricInfo

__all__ = [
    "Answer",
    "Cancel",
    "Channels",
    "Checkpoint",
    "Control",
    "Metrics",
    "Request",
    "RequestId",
    "Savepoint",
    "Stop",
]

RequestId = str
_REQUEST = ".request.json"
_ANSWER = ".answer.json"
_ANSWERS_KEPT_S = 3600.0


class Savepoint(msgspec.Struct, frozen=True, tag=True):
    """Write a savepoint, below a directory or where the configuration says."""

    path: str | None = None


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Write a savepoint and end; with `drain`, as if all sources had come to their end."""

    drain: bool = False
    path: str | None = None


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """End without a savepoint."""


class Checkpoint(msgspec.Struct, frozen=True, tag=True):
    """Make a checkpoint now."""


class Channels(msgspec.Struct, frozen=True, tag=True):
    """Say what waits in the channels now."""


class Metrics(msgspec.Struct, frozen=True, tag=True):
    """Say what functions have measured."""


Request = Savepoint | Stop | Cancel | Checkpoint | Channels | Metrics


class Answer(msgspec.Struct, frozen=True):
    """What became of a request; `path` is that of the checkpoint or savepoint, if there is one.

    `channels` and `metrics` are there if they were asked for.
    """

    ok: bool
    message: str
    path: str | None = None
    channels: list[ChannelInfo] | None = None
    metrics: list[MetricInfo] | None = None


class _Asked(msgspec.Struct, frozen=True):
    request: Request
    time: float


class _Answered(msgspec.Struct, frozen=True):
    answer: Answer
    time: float


class Control:
    """The requests to one job, for both sides."""

    def __init__(self, job_dir: JobDir, clock: Callable[[], float] = time.time) -> None:
        self._storage = job_dir.storage
        self._directory = job_dir.control.name
        self._clock = clock

    def ask(self, request: Request) -> RequestId:
        """Leave a request for the driver."""
        now = self._clock()
        # Ids sort by time, so that requests are taken in the order they were made.
        id_ = f"{int(now * 1_000_000):020d}-{uuid.uuid4().hex[:8]}"
        self._storage.create(self._path(id_, _REQUEST), msgspec.json.encode(_Asked(request, now)))
        return id_

    def answer(self, request: RequestId) -> Answer | None:
        """Return the answer to a request, None while there is none."""
        try:
            data = self._storage.read(self._path(request, _ANSWER))
        except FileNotFoundError:
            return None
        return msgspec.json.decode(data, type=_Answered).answer

    def pending(self) -> list[tuple[RequestId, Request]]:
        """Return the requests without an answer, oldest first; the driver asks now and then.

        A request stays here until it is answered. What this driver cannot read is answered at once.
        """
        found = []
        for id_ in self._unanswered():
            try:
                data = self._storage.read(self._path(id_, _REQUEST))
                found.append((id_, msgspec.json.decode(data, type=_Asked).request))
            except msgspec.DecodeError as error:
                self.reply(id_, Answer(False, f"this driver cannot read the request: {error}"))
            except FileNotFoundError:
                continue
        return found

    def reply(self, request: RequestId, answer: Answer) -> bool:
        """Answer a request; False, and nothing is changed, if it has an answer already."""
        answered = _Answered(answer, self._clock())
        try:
            self._storage.create(self._path(request, _ANSWER), msgspec.json.encode(answered))
            is_first = True
        except FileExistsError:
            is_first = False
        self._storage.delete(self._path(request, _REQUEST))
        self._tidy()
        return is_first

    def give_up(self) -> list[RequestId]:
        """Answer all requests that an older driver left open, by saying that it died.

        Called once by a new driver, before it looks at requests of its own.
        """
        left = self._unanswered()
        for id_ in left:
            message = (
                "the driver died before it answered this; what was asked may have been done "
                "or not: look at the job's checkpoints, then ask again"
            )
            self.reply(id_, Answer(False, message))
        return left

    def _unanswered(self) -> list[RequestId]:
        answered = set(self._ids(_ANSWER))
        return [id_ for id_ in self._ids(_REQUEST) if id_ not in answered]

    def _tidy(self) -> None:
        oldest = self._clock() - _ANSWERS_KEPT_S
        for id_ in self._ids(_ANSWER):
            path = self._path(id_, _ANSWER)
            try:
                is_old = msgspec.json.decode(self._storage.read(path), type=_Answered).time < oldest
            except FileNotFoundError:
                continue
            except msgspec.DecodeError:
                is_old = True
            if is_old:
                # The answer last: without it the request would look open.
                self._storage.delete(self._path(id_, _REQUEST))
                self._storage.delete(path)

    def _ids(self, suffix: str) -> list[RequestId]:
        names = (PurePosixPath(path).name for path in self._storage.list(self._directory))
        return [name.removesuffix(suffix) for name in names if name.endswith(suffix)]

    def _path(self, request: RequestId, suffix: str) -> str:
        return f"{self._directory}/{request}{suffix}"
