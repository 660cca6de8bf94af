"""Requests to S3 that the client does not know, signed with a secret key (Signature Version 4)."""

from __future__ import annotations

import errno
import hashlib
import hmac
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from xml.etree import ElementTree

from penstock.common.storage_url import StorageUrl
from penstock.storage.clients.object_store_client import ObjectStoreClient
from penstock.storage.clients.object_store_errors import Failure

_BLOCK = 1 << 16
_KINDS = {401: "UnauthenticatedError", 403: "PermissionDeniedError", 404: "FileNotFoundError"}
_ERROR = re.compile(rb"\s*(?:<\?xml[^>]*>)?\s*<Error[ >]")


@dataclass(frozen=True)
class Answer:
    """What S3 has answered."""

    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes

    def element(self) -> ElementTree.Element:
        """Return the XML of the answer."""
        # While S3 works on a request, it sends spaces to keep the connection.
        return ElementTree.fromstring(self.body.strip())


class RefusedError(Exception):
    """A request that did not succeed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.summary)
        self.failure = failure


class SignedBucket:
    """A bucket that answers requests with a query."""

    def __init__(
        self,
        client: ObjectStoreClient,
        base: str,
        scope: str,
        keys: tuple[str, str],
        token: str | None,
    ) -> None:
        self._repetition = client.repetition
        self._timeouts = client.timeouts
        self._opener = urllib.request.build_opener(
            _Handler(client.timeouts.read), _TlsHandler(client.timeouts.read)
        )
        self._base = urlsplit(base)
        self._scope = scope
        self._key_id, self._secret = keys
        self._token = token

    @classmethod
    def of(cls, client: ObjectStoreClient) -> SignedBucket | None:
        """Return the bucket of a client; None if its secret key is not known."""
        settings = {name.removeprefix("aws_"): value for name, value in client.settings.items()}
        secret = settings.get("secret_access_key", os.environ.get("AWS_SECRET_ACCESS_KEY"))
        key_id = settings.get("access_key_id", os.environ.get("AWS_ACCESS_KEY_ID"))
        if not secret or not key_id:
            return None
        # A signed URL tells what the client has found out: address, region, token.
        signed = client.library.sign(client.store, "GET", "x", timedelta(minutes=1))
        query = parse_qs(urlsplit(signed).query)
        credential, _, rest = query["X-Amz-Credential"][0].partition("/")
        if credential != key_id:
            return None
        region = rest.split("/")[1]
        token = query.get("X-Amz-Security-Token", [None])[0]
        base = signed.partition("?")[0].removesuffix("/x")
        return cls(client, base, region, (key_id, secret), token)

    def request(
        self,
        url: StorageUrl,
        method: str,
        query: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Send a request for an object or for the bucket, and repeat it if that may help.

        Raises:
            RefusedError: the answer is an error that does not pass.
            OSError: the store cannot be reached, or refuses the keys.
        """

        def attempt() -> Answer:
            return self._once(method, url.path, query, headers or {}, body)

        def explain(error: Exception) -> Failure | None:
            failure = _failure(error)
            # The caller decides what an answer means.
            is_answer = failure is not None and failure.status in (400, 404, 412)
            return None if is_answer else failure

        return self._repetition.run(attempt, url, url, explain)

    def _once(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        url, signed = self._signed(method, key, query, headers, body)
        # Otherwise a new object would be of a type that is meant for forms.
        signed.setdefault("content-type", "application/octet-stream")
        data = body if body or method in ("PUT", "POST") else None
        request = urllib.request.Request(url, data, signed, method=method)
        deadline = time.monotonic() + self._timeouts.answer
        try:
            with self._opener.open(request, timeout=self._timeouts.connect) as answer:
                content = _content(answer, deadline)
                found = {name.lower(): value for name, value in answer.headers.items()}
        except urllib.error.HTTPError as error:
            with error:
                raise RefusedError(_answered(error.code, error.read())) from None
        if _ERROR.match(content):
            # What takes long may fail after the status was sent.
            raise RefusedError(_answered(500, content))
        return Answer(found, content)

    def _signed(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> tuple[str, dict[str, str]]:
        """Return the URL and the headers of a request."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/{self._scope}/s3/aws4_request"
        digest = hashlib.sha256(body).hexdigest()
        fields = {
            **{name.lower(): value for name, value in headers.items()},
            "host": self._base.netloc,
            "x-amz-content-sha256": digest,
            "x-amz-date": now,
        }
        if self._token is not None:
            fields["x-amz-security-token"] = self._token
        names = ";".join(sorted(fields))
        listed = "".join(f"{name}:{fields[name].strip()}\n" for name in sorted(fields))
        pairs = sorted((_quoted(name), _quoted(value)) for name, value in query.items())
        text = "&".join(f"{name}={value}" for name, value in pairs)
        path = (self._base.path + (f"/{quoted_key(key)}" if key else "")) or "/"
        asked = "\n".join((method, path, text, listed, names, digest))
        secret = f"AWS4{self._secret}".encode()
        hashed = hashlib.sha256(asked.encode()).hexdigest()
        for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashed}"):
            secret = hmac.digest(secret, part.encode(), "sha256")
        fields["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._key_id}/{scope}, SignedHeaders={names}, "
            f"Signature={secret.hex()}"
        )
        url = f"{self._base.scheme}://{self._base.netloc}{path}"
        return (f"{url}?{text}" if text else url), fields


class _Connection(http.client.HTTPConnection):
    """A connection whose timeout is another one as soon as it is there."""

    def __init__(self, *args: Any, read_seconds: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._read_seconds = read_seconds

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(self._read_seconds)


class _TlsConnection(_Connection, http.client.HTTPSConnection):
    pass


class _Handler(urllib.request.HTTPHandler):
    def __init__(self, read_seconds: float) -> None:
        super().__init__()
        self._read_seconds = read_seconds

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Connection, read_seconds=self._read_seconds), req)


class _TlsHandler(urllib.request.HTTPSHandler):
    def __init__(self, read_seconds: float) -> None:
        super().__init__()
        self._read_seconds = read_seconds

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_TlsConnection, read_seconds=self._read_seconds), req)


def _content(answer: http.client.HTTPResponse, deadline: float) -> bytes:
    given = answer.headers.get("content-length")
    length = None if given is None else int(given)
    content = b""
    while len(content) != length and (block := answer.read1(_BLOCK)):
        content += block
        # It may go on for ever: see `Answer.element`.
        if time.monotonic() > deadline:
            raise TimeoutError(errno.ETIMEDOUT, "timed out")
    if length is not None and len(content) != length:
        raise http.client.IncompleteRead(content, length - len(content))
    return content


def _failure(error: Exception) -> Failure | None:
    if isinstance(error, RefusedError):
        return error.failure
    if isinstance(error, urllib.error.URLError):
        return Failure("GenericError", None, "", f"HTTP error: {error.reason}")
    if isinstance(error, OSError | http.client.HTTPException):
        reason = str(error) or type(error).__name__
        return Failure("GenericError", None, "", f"HTTP error: {reason}")
    return None


def _answered(status: int, body: bytes) -> Failure:
    text = body.decode("utf-8", "replace")
    code = re.search("<Code>([^<]*)</Code>", text)
    return Failure(_KINDS.get(status, "GenericError"), status, code[1] if code else "", text)


def quoted_key(key: str) -> str:
    """Return a key as it is written in a URL, and in the header that names the source of a copy."""
    return quote(key, safe="/-_.~")


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")
