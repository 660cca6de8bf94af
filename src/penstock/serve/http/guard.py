"""Guards the server: which hosts, origins, callers and bodies get to the application."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.serve.http.answers import error_answer
from penstock.serve.http.tokens import Role, Tokens

CSRF_HEADER = "x-penstock-request"
"""A header that no other site's page can make a browser send without being asked."""
LONGEST_BODY = 1 << 20
Refusal = tuple[int, str]
"""The status of an answer, and its message."""

_READS = ("GET", "HEAD")
_LONGEST_LENGTH = 18
_OF_BROWSERS = ("origin", "referer", "cookie", "sec-fetch-site")
GUARDING_HEADERS = {
    # A browser may keep a file, and asks whether it is still the same: after an upgrade it is not.
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
        "frame-ancestors 'none'; form-action 'none'"
    ),
}


class Guard:
    """Refuses requests for other hosts, from other sites' pages, and with large bodies.

    A page of another site can make a browser send requests here. It cannot choose `Host`, unless
    its own name leads here (DNS rebinding), nor hide its `Origin`, nor send a JSON content type or
    a header of its own without a permission (CORS) that this server never gives.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str],
        tokens: Tokens | None = None,
        public_paths: Collection[str] = (),
        longest_bodies: Mapping[str, int] | None = None,
        is_for_operators: Callable[[str], bool] = lambda path: False,
    ) -> None:
        """Guard an application.

        `hosts` are the names under which the server is reached. With `tokens` every request needs
        one, except for `public_paths`, which have nothing of a job. A body may be as long as
        `longest_bodies` says for its path, else a megabyte. What is read from paths
        `is_for_operators` is as if it changed something.
        """
        self._app = app
        self._hosts = {host.lower() for host in hosts}
        self._tokens = tokens
        self._public_paths = frozenset(public_paths)
        self._longest_bodies = dict(longest_bodies or {})
        self._is_for_operators = is_for_operators

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with an error, or let the application answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = MutableHeaders(scope=message)
                for name, value in GUARDING_HEADERS.items():
                    added.setdefault(name, value)
            await send(message)

        method, path = scope["method"], scope["path"]
        longest = self._longest_bodies.get(path, LONGEST_BODY)
        refused = (
            self._other_site(method, path, headers)
            or self._unauthorized(method, path, headers)
            or self._bad_length(headers, longest)
        )
        if refused is not None:
            status, message = refused
            more = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
            answer = error_answer(status, message, {"Connection": "close", **more})
            await answer(scope, receive, send_guarded)
            return
        try:
            await self._app(scope, _Limited(receive, longest), send_guarded)
        except _TooLargeError:
            answer = error_answer(413, _too_large(longest), {"Connection": "close"})
            await answer(scope, receive, send_guarded)

    def _changes(self, method: str, path: str) -> bool:
        return method not in _READS or self._is_for_operators(path)

    def _other_site(self, method: str, path: str, headers: Headers) -> Refusal | None:
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._is_known(host):
            return 403, "This host name is not one of the server's; see --allowed-host"
        origin = headers.get("origin")
        # Not the scheme: a proxy in front of the server may speak TLS for it.
        same = (f"http://{host}".lower(), f"https://{host}".lower())
        if origin is not None and origin.lower() not in same:
            return 403, "Requests from other sites are refused"
        changes = self._changes(method, path)
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and (
            changes or not _is_link(headers)
        ):
            return 403, "Requests from other sites are refused"
        if changes:
            is_json = headers.get("content-type", "").split(";")[0].strip() == "application/json"
            is_chosen = is_json or CSRF_HEADER in headers or "authorization" in headers
            if not is_chosen and any(name in headers for name in _OF_BROWSERS):
                return 403, f"A browser must send JSON, or the header {CSRF_HEADER}"
        return None

    def _unauthorized(self, method: str, path: str, headers: Headers) -> Refusal | None:
        if self._tokens is None or (method in _READS and path in self._public_paths):
            return None
        role = self._tokens.role(headers.get("authorization"))
        if role is Role.NOBODY:
            return 401, "A bearer token is needed: Authorization: Bearer TOKEN"
        if self._changes(method, path) and role is not Role.OPERATOR:
            return 403, "The token is a reader's: this needs one of an operator"
        return None

    def _bad_length(self, headers: Headers, longest: int) -> Refusal | None:
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()):
            return 400, "The content length is not a number"
        if len(length) > _LONGEST_LENGTH or int(length) > longest:
            return 413, _too_large(longest)
        return None

    def _is_known(self, host: str) -> bool:
        name = host_name(host)
        if name is None:
            return False
        if name in self._hosts:
            return True
        try:
            # An address is no name that another site could let lead here.
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _is_link(headers: Headers) -> bool:
    """Whether a browser shows the answer as a page of its own: a link of another site is fine."""
    to = headers.get("sec-fetch-dest", "document")
    return headers.get("sec-fetch-mode") == "navigate" and to == "document"


class _TooLargeError(Exception):
    """The body of a request that does not say its length is too long."""


class _Limited:
    def __init__(self, receive: Receive, longest: int) -> None:
        self._receive = receive
        self._left = longest

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _TooLargeError
        return message


def _too_large(longest: int) -> str:
    return f"The body is longer than {longest:,} bytes"


def host_name(host: str) -> str | None:
    """Return the name or address in a `Host` header, in lower case; None if it is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        # Reading the port checks it.
        has_port = parts.port is not None or host.endswith(":") is False
    except ValueError:
        return None
    if not has_port or parts.path or parts.query or parts.fragment or "@" in host:
        return None
    return None if parts.hostname is None else parts.hostname.lower()
