"""Requests of clients to a running driver, and its answers: files in the job's directory.

A request is one file, its answer another one with the same id, created only if absent: so every
request has at most one answer. A driver that dies leaves its requests open, and the next driver
rejects them.

Any user of the job may write into the directory. A file that is no request is answered and moved
away, and does not affect other requests.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.common.channel_info import ChannelInfo
from penstock.common.live_figures import LiveFigures
from penstock.common.metric_values import MetricInfo
from penstock.common.storage_url import StorageUrl
from penstock.common.text.tolerant_json import decode_json, encode_json
from penstock.recovery.control_files import UnusableFileError, control_files
from penstock.snapshots.queries.query import RunningState, StateQuery

logger = logging.getLogger("penstock.recovery")

RequestId = str
_REQUEST = ".request.json"
_ANSWER = ".answer.json"
_ANSWERS_KEPT_S = 3600.0
_ANSWERS_KEPT = 1000
_ANSWER_BYTES_KEPT = 64 << 20
"""Of all answers together: that to `Metrics` may be large, and be asked for every second."""
_KEY = re.compile(r"[0-9a-f]{1,64}")
_LONGEST_REQUEST = 1 << 20
_LONGEST_ANSWER = 256 << 20


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
    """Return the metrics of the job and of its functions."""


class Watch(msgspec.Struct, frozen=True, tag=True):
    """Report live figures into the job's directory for some seconds from now on.

    The answer comes at once; the figures are read with `JobDir.read_live`. Any number of clients
    may watch: the driver reports until the last of these times is over, at most an hour ahead.
    """

    seconds: float


class ReadState(msgspec.Struct, frozen=True, tag=True):
    """Return what the running job has in a keyed state after its last micro-batch."""

    query: StateQuery


Request = Savepoint | Stop | Cancel | Checkpoint | Channels | Metrics | Watch | ReadState


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request; `path` is that of the checkpoint or savepoint, if there is one."""

    ok: bool
    message: str
    path: str | None = None
    channels: list[ChannelInfo] | None = None
    metrics: list[MetricInfo] | None = None
    figures: LiveFigures | None = None
    state: RunningState | None = None


class _RequestFile(msgspec.Struct, frozen=True):
    request: Request
    time: float


class _AnswerFile(msgspec.Struct, frozen=True):
    answer: Answer
    time: float


class Control:
    """The requests to one job, for clients and for the driver; any thread may call."""

    def __init__(self, job_dir: JobDir, clock: Callable[[], float] = time.time) -> None:
        self._storage = job_dir.storage
        self._directory = job_dir.control.name
        self._files = control_files(job_dir.control)
        self._clock = clock
        self._answers: deque[tuple[float, RequestId, int]] | None = None
        """The answers that exist, when they were found or written, and their size if it is known;
        None before the first."""
        self._answer_bytes = 0
        self._answers_lock = threading.Lock()

    @property
    def is_in_store(self) -> bool:
        """Whether the requests are in a store, where looking for them takes a request, too."""
        return isinstance(self._storage.root, StorageUrl)

    def submit(self, request: Request) -> RequestId:
        """Write a request for the driver."""
        now = self._clock()
        # Ids sort by time, so that requests are handled in the order they were made.
        id_ = f"{int(now * 1_000_000):020d}-{uuid.uuid4().hex[:8]}"
        self._storage.create(self._path(id_, _REQUEST), encode_json(_RequestFile(request, now)))
        return id_

    def submit_once(self, request: Request, key: str) -> RequestId:
        """Write a request unless one with this key was written before; return its id.

        The key is up to 64 hexadecimal digits. It is known for as long as answers are kept.

        Raises:
            ValueError: the key has another form.
        """
        id_ = keyed_request(key)
        if self.answer(id_) is None:
            with suppress(FileExistsError):
                content = encode_json(_RequestFile(request, self._clock()))
                self._storage.create(self._path(id_, _REQUEST), content)
        return id_

    def is_open(self, request: RequestId) -> bool:
        """Whether a request exists, answered or not."""
        return self._storage.exists(self._path(request, _REQUEST))

    def answer(self, request: RequestId) -> Answer | None:
        """Return the answer to a request, None if there is none yet."""
        try:
            data = self._files.read(f"{request}{_ANSWER}", _LONGEST_ANSWER)
            return decode_json(data, _AnswerFile).answer
        except FileNotFoundError:
            return None
        except (UnusableFileError, msgspec.DecodeError) as error:
            message = f"the driver has answered, but the answer cannot be read: {error}"
            return Answer(False, message)

    def unanswered(self) -> list[RequestId]:
        """Return the requests without an answer, oldest first; called by the driver."""
        names = self._files.names()
        answered = set(_ids(names, _ANSWER))
        return [id_ for id_ in _ids(names, _REQUEST) if id_ not in answered]

    def pending(self) -> list[tuple[RequestId, Request]]:
        """Return the requests without an answer, oldest first; called by the driver."""
        return self.read(self.unanswered())

    def read(self, requests: Iterable[RequestId]) -> list[tuple[RequestId, Request]]:
        """Read requests; those that this driver cannot read are answered at once, and moved away.

        Called by the driver.
        """
        found = []
        for id_ in requests:
            try:
                data = self._files.read(f"{id_}{_REQUEST}", _LONGEST_REQUEST)
                found.append((id_, decode_json(data, _RequestFile).request))
            except FileNotFoundError:
                continue
            except (UnusableFileError, msgspec.DecodeError) as error:
                self._reject_unusable(id_, str(error))
        return found

    def reply(self, request: RequestId, answer: Answer) -> bool:
        """Answer a request; False, and nothing changes, if it has an answer already."""
        data = encode_json(_AnswerFile(answer, self._clock()))
        try:
            self._storage.create(self._path(request, _ANSWER), data)
            is_first = True
        except FileExistsError:
            is_first = False
        self._storage.delete(self._path(request, _REQUEST))
        if is_first:
            self._delete_old_answers(request, len(data))
        return is_first

    def reject_abandoned(self) -> list[RequestId]:
        """Reject all requests that an older driver left open.

        Called once by a new driver, before it handles requests of its own.
        """
        left = self.unanswered()
        for id_ in left:
            message = (
                "the driver died before it answered this; the request may have been carried "
                "out or not: look at the job's checkpoints, then ask again"
            )
            self._reply_if_possible(id_, Answer(False, message))
        return left

    def _reject_unusable(self, id_: RequestId, reason: str) -> None:
        # First of all it is moved away: whatever happens next, it is never looked at again.
        self._files.quarantine(f"{id_}{_REQUEST}")
        logger.warning(
            "A request to the driver cannot be read and is ignored: %r in %s: %s",
            f"{id_}{_REQUEST}",
            self._storage.location(self._directory),
            reason,
        )
        message = f"this driver cannot read the request: {reason}"
        self._reply_if_possible(id_, Answer(False, message))

    def _reply_if_possible(self, id_: RequestId, answer: Answer) -> None:
        try:
            self.reply(id_, answer)
        except OSError as error:
            logger.warning("Request %r to the driver cannot be answered: %s", id_, error)

    def _delete_old_answers(self, newest: RequestId, size: int) -> None:
        """Delete answers after an hour, and all but the newest of many or of large ones."""
        with self._answers_lock:
            now = self._clock()
            if self._answers is None:
                # Answers of older drivers: nobody knows how long they have been there.
                found = _ids(self._files.names(), _ANSWER)
                self._answers = deque((now, id_, 0) for id_ in found if id_ != newest)
            self._answers.append((now, newest, size))
            self._answer_bytes += size
            while (
                self._answers[0][0] < now - _ANSWERS_KEPT_S
                or len(self._answers) > _ANSWERS_KEPT
                or (self._answer_bytes > _ANSWER_BYTES_KEPT and len(self._answers) > 1)
            ):
                _, id_, deleted = self._answers.popleft()
                self._answer_bytes -= deleted
                # The answer last: without it the request would be open again.
                with suppress(OSError):
                    self._storage.delete(self._path(id_, _REQUEST))
                    self._storage.delete(self._path(id_, _ANSWER))

    def _path(self, request: RequestId, suffix: str) -> str:
        return f"{self._directory}/{request}{suffix}"


def keyed_request(key: str) -> RequestId:
    """Return the id of the request with a key; such requests are handled after all others.

    Raises:
        ValueError: the key does not have up to 64 hexadecimal digits.
    """
    if not _KEY.fullmatch(key):
        message = f"{key!r} does not have up to 64 hexadecimal digits"
        raise ValueError(message)
    return f"key-{key}"


def _ids(names: Iterable[str], suffix: str) -> list[RequestId]:
    return [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
