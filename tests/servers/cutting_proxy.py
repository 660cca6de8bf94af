"""A proxy between a client and a server that cuts connections at chosen requests."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Self

from penstock.testing.servers.free_port import LOOPBACK, free_port
from tests.servers.request_watch import RequestWatch, Watching

_CHUNK = 65536


class Loss(Enum):
    """What gets lost when a connection is cut at a request."""

    ANSWER = "answer"
    """The server has processed the request and answered; the client never gets the answer."""
    REQUEST = "request"
    """The server never sees the request."""


class CuttingProxy:
    """Listens on its own loopback port and forwards everything to a server's port.

    `watching` selects the requests that `cut_at` counts. If the server has to advertise the port of
    the proxy, the proxy is created first and `target` is set later. While the server is down, new
    connections are closed immediately. Runs in threads of this process.
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
        self.seen = 0
        """How many watched requests were seen."""
        self._cut = threading.Event()
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None

    def start(self) -> Self:
        """Start to listen."""
        self._listener = socket.create_server((self.host, self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def close(self) -> None:
        """Stop listening and cut all connections; may be repeated."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def pass_through(self) -> None:
        """Forward everything again, without delays, refusals and cuts."""
        with self._lock:
            self._delay, self._refusing, self._left = 0.0, False, 0

    def refuse(self) -> None:
        """Cut all connections, and close new ones immediately."""
        self._refusing = True
        self.cut()

    def cut(self) -> None:
        """Cut all connections now; new ones are accepted."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()

    def delay(self, seconds: float) -> None:
        """Delay everything in both directions."""
        self._delay = seconds

    def cut_at(self, nth: int = 1, *, loss: Loss = Loss.ANSWER) -> None:
        """Cut one connection once, at the nth watched request from now on, of any client."""
        with self._lock:
            self._loss, self._left = loss, nth
            self._cut.clear()

    def await_cut(self, seconds: float) -> bool:
        """Wait until the connection is cut; False if it was not cut within the timeout."""
        return self._cut.wait(seconds)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
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
            # refuse() was called while this connection was being established.
            link.cut()
        requests = threading.Thread(target=self._forward_requests, args=(link,), daemon=True)
        requests.start()
        self._forward_answers(link)
        requests.join()
        with self._lock:
            self._links.discard(link)
        link.close()

    def _forward_requests(self, link: _Link) -> None:
        with link.cut_at_end():
            while data := link.client.recv(_CHUNK):
                time.sleep(self._delay)
                loss = self._loss_at(link, data)
                if loss is Loss.REQUEST:
                    self._cut_link(link)
                    break
                # Before the request is sent: its answer may arrive at once.
                link.muted = link.muted or loss is Loss.ANSWER
                link.server.sendall(data)

    def _forward_answers(self, link: _Link) -> None:
        with link.cut_at_end():
            while data := link.server.recv(_CHUNK):
                time.sleep(self._delay)
                answered = link.watch is not None and link.watch.on_answer(data)
                if not link.muted:
                    link.client.sendall(data)
                elif answered:
                    self._cut_link(link)

    def _cut_link(self, link: _Link) -> None:
        link.cut()
        self._cut.set()

    def _loss_at(self, link: _Link, data: bytes) -> Loss | None:
        """Count the watched requests in these bytes; return what is lost if one is to be cut."""
        if link.watch is None:
            return None
        requests = link.watch.on_request(data)
        with self._lock:
            self.seen += requests
            is_reached = 0 < self._left <= requests
            self._left = max(0, self._left - requests)
            return self._loss if is_reached else None


@dataclass(eq=False)
class _Link:
    """The connection of one client, and the corresponding one to the server."""

    client: socket.socket
    server: socket.socket
    watch: RequestWatch | None
    muted: bool = False
    """Whether the client must not get any more answers."""

    def cut(self) -> None:
        """Shut both sockets down, which ends both threads."""
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def cut_at_end(self) -> Iterator[None]:
        """Cut both connections when either has ended or failed."""
        try:
            with contextlib.suppress(OSError):
                yield
        finally:
            self.cut()

    def close(self) -> None:
        """Close both sockets, once no thread uses them."""
        self.client.close()
        self.server.close()
