"""A proxy between a client and a server that cuts connections at the worst moment."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from enum import Enum
from types import TracebackType
from typing import Self

from penstock.testing.servers.free_port import LOOPBACK, free_port
from penstock.testing.servers.request_watch import RequestWatch, Watching

__all__ = ["CuttingProxy", "Loss"]

_CHUNK = 65536


class Loss(Enum):
    """What gets lost when a connection is cut at a request."""

    ANSWER = "answer"
    """The server has done the work and answered; the client never hears of it."""
    REQUEST = "request"
    """The server never sees the request."""


class CuttingProxy:
    """Listens on a loopback port of its own and passes everything on to a server's port.

    `watching` names the requests that `cut_at` counts. Where the server has to advertise the
    proxy's port the proxy is made first and `target` is set later. While the server is dead, a
    client's connection is closed as soon as it is made. Runs in threads of this process.
    """

    def __init__(self, target: int = 0, *, watching: Watching | None = None) -> None:
        self.target = target
        self.host = LOOPBACK
        self.port = free_port()
        self._watching = watching
        self._delay = 0.0
        self._refusing = False
        self._loss = Loss.ANSWER
        self._left = 0
        self._seen = 0
        self._cut = threading.Event()
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None

    @property
    def seen(self) -> int:
        """How many of the watched requests have come by."""
        return self._seen

    def start(self) -> Self:
        """Listen; from here on clients may come."""
        self._listener = socket.create_server((self.host, self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def close(self) -> None:
        """Stop listening and cut what is connected; may be repeated."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def pass_through(self) -> None:
        """Take back all orders and pass everything on again."""
        with self._lock:
            self._delay, self._refusing, self._left = 0.0, False, 0

    def refuse(self) -> None:
        """Cut all connections and close every new one at once."""
        self._refusing = True
        self.cut()

    def cut(self) -> None:
        """Cut all connections now; new ones are welcome."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()

    def delay(self, seconds: float) -> None:
        """Hold what passes, each way, for this long."""
        self._delay = seconds

    def cut_at(self, nth: int = 1, *, loss: Loss = Loss.ANSWER) -> None:
        """Cut one connection, once, at the nth watched request from now on, whoever sends it."""
        with self._lock:
            self._loss, self._left = loss, nth
            self._cut.clear()

    def await_cut(self, seconds: float) -> bool:
        """Wait until the cut that was ordered has happened; false if it has not by then."""
        return self._cut.wait(seconds)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        if self._refusing:
            client.close()
            return
        try:
            server = socket.create_connection((self.host, self.target))
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(client, server, self._watching() if self._watching else None)
        with self._lock:
            self._links.add(link)
        if self._refusing:
            # Said while this connection was being made.
            link.cut()
        asking = threading.Thread(target=self._ask, args=(link,), daemon=True)
        asking.start()
        self._answer(link)
        asking.join()
        with self._lock:
            self._links.discard(link)
        link.close()

    def _ask(self, link: _Link) -> None:
        with link.cut_at_the_end():
            while data := link.client.recv(_CHUNK):
                time.sleep(self._delay)
                struck = self._struck(link, data)
                if struck is Loss.REQUEST:
                    self._strike(link)
                    break
                # Before the request goes out: its answer may be back at once.
                link.muted = link.muted or struck is Loss.ANSWER
                link.server.sendall(data)

    def _answer(self, link: _Link) -> None:
        with link.cut_at_the_end():
            while data := link.server.recv(_CHUNK):
                time.sleep(self._delay)
                answered = link.watch is not None and link.watch.answered(data)
                if not link.muted:
                    link.client.sendall(data)
                elif answered:
                    self._strike(link)

    def _strike(self, link: _Link) -> None:
        link.cut()
        self._cut.set()

    def _struck(self, link: _Link, data: bytes) -> Loss | None:
        """Count the watched requests in these bytes; say what is lost if one is to be cut."""
        if link.watch is None:
            return None
        requests = link.watch.asked(data)
        with self._lock:
            self._seen += requests
            struck = 0 < self._left <= requests
            self._left = max(0, self._left - requests)
            return self._loss if struck else None


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(
        self, client: socket.socket, server: socket.socket, watch: RequestWatch | None
    ) -> None:
        self.client = client
        self.server = server
        self.watch = watch
        self.muted = False
        """The client is not to hear anything any more."""

    def cut(self) -> None:
        """Wake both threads; they find their sockets at an end."""
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def cut_at_the_end(self) -> Iterator[None]:
        """Take an error of either socket for the end of both."""
        try:
            with contextlib.suppress(OSError):
                yield
        finally:
            self.cut()

    def close(self) -> None:
        """Let go of both sockets, once no thread uses them."""
        self.client.close()
        self.server.close()
