"""Explains the errors of object stores: which ones pass, and what a user can do about the others.

The client gives most facts only in the text of its errors. That text may also hold what must not be
shown, such as a signature in a query, so only chosen parts of it get into messages.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass

from penstock.common.storage_url import StorageUrl

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_CAUSE = re.compile(r" - (HTTP error: [^\n]*)")
_TIMED_OUT = re.compile(r"TimedOut|timed out", re.IGNORECASE)
_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "InvalidBucketName"})
_NO_OBJECT = frozenset({"", "NoSuchKey", "BlobNotFound", "ResourceNotFound"})
_REFUSED = frozenset(
    {
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
        "TokenRefreshRequired",
        "RequestTimeTooSkewed",
        "XAdminUserNotFound",  # versitygw's, with status 404
    }
)
_PASSING_CODES = frozenset({"RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable"})
_PASSING_STATUS = frozenset({408, 409, 429})
_METADATA_HOST = "169.254.169.254"
"""Where a machine in a cloud asks for its credentials; asked last, if there are no others."""
_REMEDIES = {
    "s3": "penstock.storage.s3.access-key-id and .secret-access-key, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY",
    "gs": "penstock.storage.gs.service-account, or GOOGLE_SERVICE_ACCOUNT",
    "az": "penstock.storage.az.account-name and .account-key, or AZURE_STORAGE_ACCOUNT_NAME and "
    "AZURE_STORAGE_ACCOUNT_KEY",
}


@dataclass(frozen=True)
class Failure:
    """What is known of a failed request."""

    kind: str
    """The name of the client's exception."""
    status: int | None
    code: str
    """The store's own name of the error, empty if it did not give one."""
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the facts in an exception of the client."""
        text = str(error)
        status = _STATUS.search(text)
        code = _CODE.search(text)
        return cls(
            "ValueError" if isinstance(error, ValueError) else type(error).__name__,
            int(status[1]) if status else None,
            code[1] if code else "",
            text,
        )

    @property
    def is_out_of_range(self) -> bool:
        """Whether the object has no byte at the offset."""
        return self.status == 416

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed a little later."""
        if self._lacks_credentials or self.kind in ("PreconditionError", "InvalidPathError"):
            return False
        if self.code in _PASSING_CODES:
            return True
        if self.status is None:
            # No answer, or a broken one. A redirect means another region, or a proxy.
            return self.kind == "GenericError" and "redirect" not in self.text
        return self.status in _PASSING_STATUS or self.status >= 500

    @property
    def summary(self) -> str:
        """What the store has answered, in few words."""
        if self.status is not None:
            message = _MESSAGE.search(self.text)
            words = [f"HTTP {self.status}", self.code, f"({message[1]})" if message else ""]
            return " ".join(word for word in words if word)
        if _TIMED_OUT.search(self.text):
            return "no answer in time"
        cause = _CAUSE.search(self.text)
        return cause[1] if cause else self.text.partition("\n")[0].partition("?")[0]

    def as_os_error(self, url: StorageUrl, store: StorageUrl) -> OSError:
        """Return the error that the caller gets, with the URL of the file."""
        number, message = self._explained(store)
        return OSError(number, message, str(url))

    @property
    def _lacks_credentials(self) -> bool:
        refused = self.kind in ("PermissionDeniedError", "UnauthenticatedError")
        return refused or self.code in _REFUSED or _METADATA_HOST in self.text

    def _explained(self, store: StorageUrl) -> tuple[int, str]:
        settings = f"penstock.storage.{store.scheme}"
        if _METADATA_HOST in self.text:
            return errno.EACCES, f"there are no credentials: set {_REMEDIES[store.scheme]}"
        if self._lacks_credentials:
            remedy = f"correct {_REMEDIES[store.scheme]}, or what they permit"
            return errno.EACCES, f"the store refuses the request, {self.summary}: {remedy}"
        if self.code in _NO_BUCKET:
            # Not ENOENT: that would mean that only the object is missing.
            return errno.ENXIO, f"there is no bucket {store.authority!r}: create it, or correct it"
        if self.kind == "FileNotFoundError" and self.code in _NO_OBJECT:
            return errno.ENOENT, "no such object"
        if self.kind == "PreconditionError":
            return errno.ESTALE, "the object was replaced while it was being read: read it again"
        if self.kind in ("InvalidPathError", "ValueError"):
            reason = self.text.partition("\n")[0]
            return errno.EINVAL, f"the name of an object cannot be used: {reason}"
        if "redirect" in self.text:
            remedy = f"set {settings}.region to the region of the bucket"
            return errno.EREMOTE, f"the store redirects to another place: {remedy}"
        if self.status is None and _TIMED_OUT.search(self.text):
            remedy = f"check the network, or raise {settings}.read-timeout"
            return errno.ETIMEDOUT, f"the store did not answer in time: {remedy}"
        if self.status is None:
            remedy = f"check the network and {settings}.endpoint"
            return errno.EIO, f"the store cannot be reached: {self.summary}; {remedy}"
        if self.is_passing:
            remedy = f"try again, or raise {settings}.retry-timeout"
            return errno.EIO, f"the store is busy or has failed, {self.summary}: {remedy}"
        return errno.EIO, f"the store refuses the request, {self.summary}"
