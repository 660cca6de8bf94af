"""Multipart uploads in S3 by their ids, which outlive the process that has begun them.

The client has no calls for them: it completes or aborts in the same process what it has begun.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from penstock.common.storage_url import StorageUrl
from penstock.storage.clients.object_store_client import ObjectStoreClient, check_fork, client_of
from penstock.storage.clients.s3_requests import RefusedError, SignedBucket, quoted_key

logger = logging.getLogger("penstock.storage")

_UNDERSTOOD = frozenset(
    {
        "access_key_id",
        "allow_http",
        "connect_timeout",
        "default_region",
        "endpoint",
        "endpoint_url",
        "endpoint_url_s3",
        "init_backoff",
        "max_backoff",
        "read_timeout",
        "region",
        "retry_timeout",
        "secret_access_key",
        "session_token",
        "timeout",
        "token",
        "virtual_hosted_style_request",
    }
)
"""Settings that the requests made here heed; any other may be about encryption or a proxy."""
_MISUNDERSTOOD = ("AWS_SERVER_SIDE_ENCRYPTION", "AWS_SSE_", "AWS_SKIP_", "AWS_REQUEST_PAYER")
"""How environment variables begin that the client heeds, and the requests made here do not."""


class UploadedPart(NamedTuple):
    """A part of an upload, as its completion names it.

    ``checksum`` is its CRC-32 as the store has found it, empty if it told none.
    """

    etag: str
    checksum: str = ""


def checksum_text(crc: int) -> str:
    """Return a CRC-32 as S3 writes it."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def crc_of(text: str) -> int:
    """Return the CRC-32 that S3 has written."""
    return int.from_bytes(base64.b64decode(text), "big")


def etag_of_upload(parts: Sequence[UploadedPart]) -> str:
    """Return the ETag of an object that was uploaded in parts; empty if they do not tell it.

    With some kinds of encryption the object has another one.
    """
    try:
        digests = [bytes.fromhex(part.etag.strip('"')) for part in parts]
    except ValueError:
        return ""
    digest = hashlib.md5(b"".join(digests), usedforsecurity=False).hexdigest()
    return f'"{digest}-{len(digests)}"'


class MultipartUploads:
    """The multipart uploads of a bucket; any process with the keys may continue them."""

    def __init__(self, bucket: SignedBucket, root: StorageUrl) -> None:
        self._bucket = bucket
        self._root = root

    @classmethod
    def of(cls, url: StorageUrl) -> MultipartUploads | None:
        """Return the uploads of a URL's bucket; None if they cannot be made with its settings.

        They need a secret key in the settings or in AWS_SECRET_ACCESS_KEY, and no setting that is
        about more than the address, the keys and times.
        """
        if url.scheme != "s3":
            return None
        client = client_of(url)
        given = {name.removeprefix("aws_") for name in client.settings}
        if not given <= _UNDERSTOOD or any(name.startswith(_MISUNDERSTOOD) for name in os.environ):
            return None
        bucket = SignedBucket.of(client)
        return None if bucket is None else cls(bucket, url)

    def create(self, target: StorageUrl) -> str:
        """Begin an upload and return its id; nothing is visible before it is completed."""
        check_fork(self._root)
        headers = {"x-amz-checksum-algorithm": "CRC32"}
        answer = self._refused(target, "POST", {"uploads": ""}, headers)
        return _text(answer, "UploadId")

    def put_part(
        self, target: StorageUrl, upload: str, number: int, data: bytes, crc: int
    ) -> UploadedPart:
        """Upload the bytes of a part, which the store compares with their CRC-32."""
        query = {"partNumber": str(number), "uploadId": upload}
        checksum = checksum_text(crc)
        headers = {"x-amz-checksum-crc32": checksum}
        try:
            answer = self._bucket.request(target, "PUT", query, headers, data)
        except RefusedError as error:
            raise error.failure.as_os_error(target, self._root) from error
        known = answer.headers.get("x-amz-checksum-crc32", "")
        return UploadedPart(answer.headers["etag"], known)

    def copy_part(
        self,
        target: StorageUrl,
        upload: str,
        number: int,
        source: StorageUrl,
        between: tuple[int, int] | None,
    ) -> UploadedPart:
        """Let the store copy an object of the same bucket, or some of its bytes, into a part."""
        query = {"partNumber": str(number), "uploadId": upload}
        headers = {"x-amz-copy-source": f"/{source.authority}/{quoted_key(source.path)}"}
        if between is not None:
            headers["x-amz-copy-source-range"] = f"bytes={between[0]}-{between[1] - 1}"
        answer = self._refused(target, "PUT", query, headers)
        return UploadedPart(_text(answer, "ETag"), _text(answer, "ChecksumCRC32"))

    def complete(self, target: StorageUrl, upload: str, parts: Sequence[UploadedPart]) -> None:
        """Let the object appear, never in place of another one.

        Raises:
            FileNotFoundError: there is no such upload: it was completed, aborted, or has expired.
            FileExistsError: there is an object of this name.
        """
        check_fork(self._root)
        rows = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(part.etag)}</ETag>"
            + (f"<ChecksumCRC32>{part.checksum}</ChecksumCRC32>" if part.checksum else "")
            + "</Part>"
            for number, part in enumerate(parts, 1)
        )
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        body = f'<CompleteMultipartUpload xmlns="{space}">{rows}</CompleteMultipartUpload>'
        headers = {"If-None-Match": "*"}
        try:
            self._bucket.request(target, "POST", {"uploadId": upload}, headers, body.encode())
        except RefusedError as error:
            failure = error.failure
            if failure.code == "NoSuchUpload":
                raise FileNotFoundError(str(target)) from None
            if failure.status == 412:
                raise FileExistsError(str(target)) from None
            raise failure.as_os_error(target, self._root) from error

    def abort(self, target: StorageUrl, upload: str) -> None:
        """Remove an upload and its parts, if it is there; the object, if it appeared, stays."""
        check_fork(self._root)
        try:
            self._bucket.request(target, "DELETE", {"uploadId": upload})
        except RefusedError as error:
            if error.failure.status != 404:
                raise error.failure.as_os_error(target, self._root) from error

    def begun(self, prefix: str) -> Iterator[tuple[StorageUrl, str]]:
        """Yield the objects whose keys begin with a prefix and that are being uploaded, and ids."""
        check_fork(self._root)
        bucket = StorageUrl(self._root.scheme, self._root.authority, (), self._root.options)
        marker: dict[str, str] = {}
        while True:
            query = {"uploads": "", "prefix": prefix, "encoding-type": "url", **marker}
            page = self._refused(bucket, "GET", query)
            is_encoded = _text(page, "EncodingType") == "url"

            def key(element: ElementTree.Element, name: str, decode: bool = is_encoded) -> str:
                return unquote(_text(element, name)) if decode else _text(element, name)

            for upload in page.iterfind("{*}Upload"):
                if (found := key(upload, "Key")).startswith(prefix):
                    yield _url(bucket, found), _text(upload, "UploadId")
            if _text(page, "IsTruncated") != "true":
                return
            marker = {
                "key-marker": key(page, "NextKeyMarker"),
                "upload-id-marker": _text(page, "NextUploadIdMarker"),
            }

    def _refused(
        self,
        url: StorageUrl,
        method: str,
        query: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
    ) -> ElementTree.Element:
        try:
            return self._bucket.request(url, method, query, headers).element()
        except RefusedError as error:
            raise error.failure.as_os_error(url, self._root) from error


def abort_uploads(
    client: ObjectStoreClient, root: StorageUrl, prefix: str, which: Callable[[str], bool]
) -> None:
    """Abort unfinished uploads of objects whose keys begin with a prefix.

    ``which`` decides by the object's path below the root. Needs a secret key in the settings or in
    AWS_SECRET_ACCESS_KEY; without one it does nothing.
    """
    bucket = SignedBucket.of(client)
    if bucket is None:
        logger.info(
            "Unfinished uploads below %s cannot be found with these credentials: give the bucket "
            "a lifecycle rule that aborts incomplete multipart uploads.",
            root,
        )
        return
    uploads = MultipartUploads(bucket, root)
    try:
        for target, upload in list(uploads.begun(prefix)):
            if which("/".join(target.parts[len(root.parts) :])):
                uploads.abort(target, upload)
    except OSError as error:
        message = f"unfinished uploads cannot be removed: {error.strerror or error}"
        raise OSError(error.errno, message, error.filename) from error


def _url(bucket: StorageUrl, key: str) -> StorageUrl:
    # Not `/`: keys of other programs may have names that no path has.
    return StorageUrl(bucket.scheme, bucket.authority, tuple(key.split("/")), bucket.options)


def _text(element: ElementTree.Element, name: str) -> str:
    return element.findtext(f"{{*}}{name}") or ""
