"""An HTTP proxy before an S3 server that counts requests, and fails those that a test chooses."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from penstock.testing.servers.free_port import LOOPBACK


@dataclass(frozen=True)
class Request:
    """One request as the proxy has received it."""

    method: str
    target: str
    """Path and query."""
    headers: dict[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class Fault:
    """What happens to one request; by default what happens without the proxy."""

    status: int | None = None
    """Answer with this status instead of forwarding the request."""
    code: str = "SlowDown"
    """The code in the XML of that answer."""
    loses_answer: bool = False
    """Forward the request and close the connection instead of answering."""
    cuts_after: int | None = None
    """Close the connection after this many bytes of the answer's body."""
    delay: float = 0.0
    """Wait this long before the request is forwarded."""
    body: bytes | None = None
    """Answer with this body; without a status, once the request was forwarded."""
    request_body: bytes | None = None
    """Forward this instead of the body of the request."""
    then: Callable[[], None] | None = None
    """Is called when the server has answered, and before the client gets the answer."""


Choose = Callable[[Request], Fault | None]
_HOP = {"transfer-encoding", "connection", "keep-alive", "content-length"}


class FaultyS3:
    """Listens on its own loopback port and forwards requests with the headers that were signed.

    `choose` decides what happens to a request, None means nothing special. `requests` has all of
    them, in the order of their arrival.
    """

    def __init__(self, target: int, choose: Choose | None = None) -> None:
        self.target = target
        self.choose: Choose = choose or (lambda _: None)
        self.requests: list[Request] = []
        proxy = self

        class Handler(_Handler):
            def one(self, request: Request) -> None:
                proxy.requests.append(request)
                self.answer(request, proxy.choose(request) or Fault(), proxy.target)

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True

    @property
    def endpoint(self) -> str:
        """The URL for clients."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def counted(self) -> list[str]:
        """Return the requests since the last call, as their methods and the keys of their query."""
        seen, self.requests = self.requests, []
        return [f"{r.method} {_query(r.target)}".strip() for r in seen]

    def once(self, fault: Fault, method: str, times: int = 1) -> None:
        """Let the next requests with this method fail, and none after them."""
        left = [times]

        def choose(request: Request) -> Fault | None:
            if request.method != method or left[0] == 0:
                return None
            left[0] -= 1
            return fault

        self.choose = choose

    def always(self, fault: Fault) -> None:
        """Let all requests fail."""
        self.choose = lambda _: fault

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def one(self, request: Request) -> None:
        raise NotImplementedError

    def handle_one_request(self) -> None:
        with contextlib.suppress(OSError, HTTPException):
            self._handle()
            return
        self.close_connection = True

    def _handle(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.one(Request(self.command, self.path, dict(self.headers), body))

    def answer(self, request: Request, fault: Fault, target: int) -> None:
        time.sleep(fault.delay)
        if fault.status is not None:
            xml = f"<Error><Code>{fault.code}</Code><Message>a fault</Message></Error>".encode()
            answer = xml if fault.body is None else fault.body
            self._send(fault.status, [], b"" if request.method == "HEAD" else answer, None)
            return
        connection = HTTPConnection(LOOPBACK, target, timeout=60)
        try:
            headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP}
            headers["Content-Length"] = str(len(request.body))
            connection.putrequest(request.method, request.target, True, True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders(fault.request_body or request.body)
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        if fault.then is not None:
            fault.then()
        if fault.loses_answer:
            self._cut()
            return
        length = len(data)
        if request.method == "HEAD":
            length = int(response.headers.get("Content-Length") or 0)
        if fault.body is not None:
            data, length = fault.body, len(fault.body)
        kept = [(k, v) for k, v in response.getheaders() if k.lower() not in _HOP]
        self._send(response.status, kept, data, fault.cuts_after, length)

    def _send(
        self,
        status: int,
        headers: list[tuple[str, str]],
        data: bytes,
        cut: int | None,
        length: int | None = None,
    ) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data if cut is None else data[:cut])
        self.wfile.flush()
        if cut is not None:
            self._cut()

    def _cut(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def _query(target: str) -> str:
    parts = target.partition("?")[2].split("&")
    return ",".join(sorted(part.partition("=")[0] for part in parts if part))
