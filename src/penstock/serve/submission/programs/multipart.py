"""Finds the one file in a multipart body, which a client may have made up."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from email.errors import MessageError
from email.message import Message
from email.parser import HeaderParser

from penstock.errors import InvalidSubmissionError

_LONGEST_BOUNDARY = 70
_LONGEST_HEADERS = 8192
_MOST_PARTS = 16


@dataclass(frozen=True, slots=True)
class FilePart:
    """Where the file is in the body."""

    name: str
    begin: int
    end: int


def find_file(body: bytes | mmap.mmap, content_type: str) -> FilePart:
    """Return the only part that has a file name, whatever its field is called, as Flink does.

    Raises:
        InvalidSubmissionError: the body is malformed, or has no file or several.
    """
    delimiter = b"--" + _boundary(content_type)
    found: list[FilePart] = []
    at = 0 if body[: len(delimiter)] == delimiter else _after_line(body, delimiter, 0)
    for _ in range(_MOST_PARTS):
        at += len(delimiter)
        if body[at : at + 2] == b"--":
            if len(found) != 1:
                reason = f"exactly 1 file must be sent, received {len(found)}"
                raise InvalidSubmissionError(reason)
            return found[0]
        headers_end = body.find(b"\r\n\r\n", at, at + _LONGEST_HEADERS)
        if headers_end < 0:
            reason = "the headers of a part are too long or have no end"
            raise InvalidSubmissionError(reason)
        begin, headers = headers_end + 4, _headers(body[at : headers_end + 2])
        at = _after_line(body, delimiter, headers_end + 2)
        if headers.get_filename() is not None:
            found.append(FilePart(str(headers.get_filename()), begin, max(begin, at - 2)))
    reason = f"the body has more than {_MOST_PARTS} parts"
    raise InvalidSubmissionError(reason)


def _boundary(content_type: str) -> bytes:
    header = Message()
    try:
        header["content-type"] = content_type
        boundary = header.get_boundary() or ""
    except (MessageError, ValueError):
        boundary = ""
    if header.get_content_type() != "multipart/form-data" or not boundary:
        reason = "the body must be multipart/form-data with one file"
        raise InvalidSubmissionError(reason)
    if len(boundary) > _LONGEST_BOUNDARY or not boundary.isascii():
        reason = "the boundary of the body is too long, or no ASCII"
        raise InvalidSubmissionError(reason)
    return boundary.encode()


def _after_line(body: bytes | mmap.mmap, delimiter: bytes, start: int) -> int:
    """Return where the next delimiter is that begins a line."""
    while (at := body.find(b"\r\n" + delimiter, start)) >= 0:
        end = at + 2 + len(delimiter)
        if body[end : end + 2] in (b"--", b"\r\n"):
            return at + 2
        start = at + 2
    reason = "the body ends before its last boundary"
    raise InvalidSubmissionError(reason)


def _headers(data: bytes) -> Message:
    try:
        return HeaderParser().parsestr(data.decode("utf-8").lstrip("\r\n"))
    except (MessageError, UnicodeDecodeError) as error:
        reason = f"the headers of a part are malformed: {error}"
        raise InvalidSubmissionError(reason) from error
