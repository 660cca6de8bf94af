"""A kept-alive HTTP connection to `penstock serve`."""

from __future__ import annotations

import http.client
import ssl
import threading
from urllib.parse import urlsplit

import msgspec

from penstock.queryable.errors import StateServerError, error_for


class _Errors(msgspec.Struct):
    errors: list[str] = []


class Connection:
    """Sends requests; each thread has a connection of its own, which is kept open."""

    def __init__(self, url: str, token: str | None, timeout_s: float) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            message = f"{url!r} is not the address of a server, such as http://localhost:8081"
            raise ValueError(message)
        self._is_secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._local = threading.local()

    def get(self, path: str) -> bytes:
        """Return the body of an answer.

        Raises:
            QueryableStateError: the server answers with an error, or not at all.
        """
        reason: Exception
        for _ in range(2):
            is_kept = self._kept is not None
            try:
                return self._get(path)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                reason = error
                if not is_kept:
                    break
                # The server has closed a connection that was kept open: a new one may do.
        message = f"The server at {self._host} does not answer: {reason or type(reason).__name__}"
        raise StateServerError(message) from reason

    def close(self) -> None:
        """Close the connection of this thread."""
        if (kept := self._kept) is not None:
            kept.close()
            self._local.connection = None

    @property
    def _kept(self) -> http.client.HTTPConnection | None:
        found: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        return found

    def _get(self, path: str) -> bytes:
        connection = self._kept
        if connection is None:
            connection = self._local.connection = self._new()
        connection.request("GET", f"{self._base}{path}", headers=self._headers)
        response = connection.getresponse()
        body = response.read()
        if response.status == http.client.OK:
            return body
        try:
            errors = msgspec.json.decode(body, type=_Errors).errors
        except msgspec.DecodeError:
            errors = []
        raise error_for(response.status, "; ".join(errors) or f"status {response.status}")

    def _new(self) -> http.client.HTTPConnection:
        if self._is_secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout_s, context=context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
