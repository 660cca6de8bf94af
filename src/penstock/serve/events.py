"""Server-sent events: a stream of what changes in the list of jobs, and in one job.

A stream sends the newest state of a topic, not every state in between: a slow reader makes nothing
pile up. What is sent is computed once for all streams, and only while there are any.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable

from anyio import to_thread
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from penstock.common.text.tolerant_json import encode_json
from penstock.redaction import redact

logger = logging.getLogger("penstock.serve")

Source = Callable[[str], object]
"""Returns the state of a topic, for JSON; it may block."""

JOBS = "jobs"
"""The topic of the list of jobs."""

_EVERY_S = 1.0
_SILENT_S = 15.0
MOST_STREAMS = 100


class TooManyStreamsError(Exception):
    """As many streams are open as the server allows."""


class EventHub:
    """Computes the states of topics while they have readers; used by the event loop only."""

    def __init__(self, most_streams: int = MOST_STREAMS, every_s: float = _EVERY_S) -> None:
        self._most_streams = most_streams
        self._every_s = every_s
        self._readers: Counter[str] = Counter()
        self._states: dict[str, tuple[int, bytes]] = {}
        self._version = 0
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._source: Source = lambda topic: None
        self.streams = 0
        """How many streams are open."""
        self._problem = ""
        """Why a state could not be had the last time; logged when it changes."""
        self.is_ending: Callable[[], bool] = lambda: False
        """Whether the server ends; streams do, too, then."""

    def open(self, topics: list[str], source: Source) -> EventStream:
        """Return a stream of events; each has the name of its topic and its state as JSON.

        Raises:
            TooManyStreamsError: too many are open.
        """
        if self.streams >= self._most_streams:
            raise TooManyStreamsError
        self._source = source
        self.streams += 1
        self._readers.update(topics)
        return EventStream(self, topics)

    def close(self, topics: list[str]) -> None:
        """Note that a stream has ended."""
        self.streams -= 1
        self._readers.subtract(topics)
        self._readers += Counter()

    async def events(self, topics: list[str]) -> AsyncIterator[bytes]:
        """Yield the states of topics as they change."""
        yield b"retry: 2000\n\n"
        sent: dict[str, int] = {}
        while not self.is_ending():
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._run())
            known = [(topic, *self._states[topic]) for topic in topics if topic in self._states]
            new = [event for event in known if sent.get(event[0]) != event[1]]
            for topic, version, state in new:
                sent[topic] = version
                yield b"event: %b\ndata: %b\n\n" % (topic.encode(), state)
            if not new:
                yield await self._next()

    async def _next(self) -> bytes:
        """Wait for a change; return nothing, or a comment that keeps the connection open."""
        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait(), _SILENT_S)
            except TimeoutError:
                return b": still here\n\n"
        return b""

    async def _run(self) -> None:
        while self._readers:
            for topic in list(self._readers):
                try:
                    value = await to_thread.run_sync(self._source, topic)
                    self._keep(topic, encode_json(value))
                except Exception as error:
                    # It is sent when it can be had again.
                    self._log(f"{type(error).__name__}: {error}")
            self._states = {t: s for t, s in self._states.items() if t in self._readers}
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(self._every_s)
        self._states = {}

    def _log(self, problem: str) -> None:
        if problem != self._problem:
            logger.warning("Event streams lack the newest state: %s", redact(problem))
        self._problem = problem

    def _keep(self, topic: str, state: bytes) -> None:
        if topic not in self._states or self._states[topic][1] != state:
            self._version += 1
            self._states[topic] = self._version, state


class EventStream(StreamingResponse):
    """The response of an open stream; it ends when the client goes away."""

    def __init__(self, hub: EventHub, topics: list[str]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        events = hub.events(topics)
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._hub = hub
        self._topics = topics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client goes away."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hub.close(self._topics)
