"""Finds and aborts unfinished multipart uploads in S3, for which the client has no call.

The client signs only requests without a query, so these are signed here (AWS Signature Version 4).
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree

from penstock.common.storage_url import StorageUrl
from penstock.storage.clients.object_store_client import ObjectStoreClient

logger = logging.getLogger("penstock.storage")

_SECONDS = 30
_GONE = 404
_REFUSED = (401, 403)


def abort_uploads(client: ObjectStoreClient, root: StorageUrl, prefix: str) -> None:
    """Abort all unfinished uploads of objects whose keys begin with a prefix.

    Needs a secret key in the settings or in AWS_SECRET_ACCESS_KEY; without one it does nothing.
    """
    bucket = SignedBucket.of(client)
    if bucket is None:
        logger.info(
            "Unfinished uploads below %s cannot be found with these credentials: give the bucket "
            "a lifecycle rule that aborts incomplete multipart uploads.",
            root,
        )
        return
    try:
        for key, upload in list(_uploads(bucket, prefix)):
            bucket.request("DELETE", key, {"uploadId": upload})
    except OSError as error:
        reason = error.strerror or getattr(error, "reason", str(error))
        message = f"unfinished uploads cannot be removed: {reason}"
        number = error.errno or errno.EIO
        raise OSError(number, message, f"{root.scheme}://{root.authority}/{prefix}") from error


def _uploads(bucket: SignedBucket, prefix: str) -> Iterator[tuple[str, str]]:
    marker: dict[str, str] = {}
    while True:
        query = {"uploads": "", "prefix": prefix, "encoding-type": "url", **marker}
        page = ElementTree.fromstring(bucket.request("GET", "", query))
        is_encoded = _text(page, "EncodingType") == "url"

        def key(element: ElementTree.Element, name: str, decode: bool = is_encoded) -> str:
            return unquote(_text(element, name)) if decode else _text(element, name)

        for upload in page.iterfind("{*}Upload"):
            if (found := key(upload, "Key")).startswith(prefix):
                yield found, _text(upload, "UploadId")
        if _text(page, "IsTruncated") != "true":
            return
        marker = {
            "key-marker": key(page, "NextKeyMarker"),
            "upload-id-marker": _text(page, "NextUploadIdMarker"),
        }


def _text(element: ElementTree.Element, name: str) -> str:
    return element.findtext(f"{{*}}{name}") or ""


class SignedBucket:
    """A bucket that answers requests with a query."""

    def __init__(self, base: str, scope: str, key_id: str, secret: str, token: str | None) -> None:
        self._base = urlsplit(base)
        self._scope = scope
        self._key_id = key_id
        self._secret = secret
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
        signed = client.library.sign(client.store, "GET", "x", timedelta(seconds=_SECONDS))
        query = parse_qs(urlsplit(signed).query)
        credential, _, rest = query["X-Amz-Credential"][0].partition("/")
        if credential != key_id:
            return None
        region = rest.split("/")[1]
        token = query.get("X-Amz-Security-Token", [None])[0]
        return cls(signed.partition("?")[0].removesuffix("/x"), region, key_id, secret, token)

    def request(self, method: str, key: str, query: Mapping[str, str]) -> bytes:
        """Send a request without a body and return the answer; empty if there is no such thing.

        Raises:
            OSError: the store cannot be reached, or refuses the request.
        """
        request = urllib.request.Request(self.signed_url(method, key, query), method=method)
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            if error.code == _GONE and method == "DELETE":
                return b""
            number = errno.EACCES if error.code in _REFUSED else errno.EIO
            raise OSError(number, f"HTTP {error.code}") from None

    def signed_url(self, method: str, key: str, query: Mapping[str, str]) -> str:
        """Return a URL that may be requested for a short time."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/{self._scope}/s3/aws4_request"
        fields = {
            **query,
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{self._key_id}/{scope}",
            "X-Amz-Date": now,
            "X-Amz-Expires": str(_SECONDS),
            "X-Amz-SignedHeaders": "host",
        }
        if self._token is not None:
            fields["X-Amz-Security-Token"] = self._token
        pairs = sorted((_quoted(name), _quoted(value)) for name, value in fields.items())
        text = "&".join(f"{name}={value}" for name, value in pairs)
        path = (self._base.path + (f"/{quote(key, safe='/-_.~')}" if key else "")) or "/"
        host = self._base.netloc
        asked = "\n".join((method, path, text, f"host:{host}\n", "host", "UNSIGNED-PAYLOAD"))
        digest = hashlib.sha256(asked.encode()).hexdigest()
        secret = f"AWS4{self._secret}".encode()
        for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"):
            secret = hmac.digest(secret, part.encode(), "sha256")
        return f"{self._base.scheme}://{host}{path}?{text}&X-Amz-Signature={secret.hex()}"


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")
