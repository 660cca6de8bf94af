"""HTTP connections: how many are open, and how long they may take to send a request."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.serve.http.answers import error_answer
from penstock.serve.http.guard import GUARDING_HEADERS

HEAD_TIMEOUT_S = 10.0
"""How long a client may take to send the head of a request, or for the handshake of TLS."""
_MOST_CONNECTIONS = 400
_REFUSED = 50
"""Connections beyond the limit that are still answered with 503."""
_FILES = 4096
_RETRY_S = "5"


class Connection(H11Protocol):
    """A connection that must send the head of a request in time.

    If too many are open, a new one replaces the oldest one without a complete head: a client
    that only opens connections does not block others. If there is none, the new one gets 503.
    """

    head_timeout_s = HEAD_TIMEOUT_S
    most_connections = _MOST_CONNECTIONS
    connections: set[Any]
    _opened = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start waiting for a head, and make room."""
        super().connection_made(transport)
        self._opened = time.monotonic()
        self._await_head()
        if len(self.connections) > self.most_connections:
            idle = [c for c in self.connections if c.has_no_head and c is not self]
            if idle:
                min(idle, key=lambda c: c._opened)._close()
            elif len(self.connections) > self.most_connections + _REFUSED:
                self._close()
            else:
                self.app = _busy

    def data_received(self, data: bytes) -> None:
        """Take what the client sends; what follows the first byte of a head must come in time."""
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def has_no_head(self) -> bool:
        """Whether the head of the next request is not complete."""
        return self.conn.their_state is h11.IDLE

    def _await_head(self) -> None:
        if not self.has_no_head or self.transport.is_closing():
            self._stop_waiting()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.head_timeout_s, self._time_out)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if self.has_no_head:
            self._close()

    def _close(self) -> None:
        self._stop_waiting()
        # Without waiting for the client to read anything.
        self.transport.abort()
        self.connections.discard(self)


class ServerLoop(asyncio.SelectorEventLoop):
    """The server's event loop: clients that do not finish the handshake of TLS are dropped."""

    async def create_server(self, *args: Any, **options: Any) -> Any:
        """Listen."""
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", HEAD_TIMEOUT_S)
        return await super().create_server(*args, **options)


def connections() -> type[Connection]:
    """Return connections that leave half of the files that this process may open to others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    most = _MOST_CONNECTIONS
    if soft != resource.RLIM_INFINITY:
        most = max(1, min(most, soft // 2 - _REFUSED))
    return type("Connection", (Connection,), {"most_connections": most})


async def _busy(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer that too many connections are open."""
    headers = {**GUARDING_HEADERS, "Connection": "close", "Retry-After": _RETRY_S}
    answer = error_answer(503, "Too many connections are open; try again later", headers)
    await answer(scope, receive, send)
