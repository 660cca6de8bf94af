"""Bucket assigners: which directory of a file sink a value goes to."""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import PurePosixPath
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.common.storage_url import Location
from penstock.connectors.staging.staging_directory import is_hidden
from penstock.errors import InvalidBucketError

_LONGEST_NAME = 255

_STRFTIME = {
    "yyyy": "%Y",
    "uuuu": "%Y",
    "yy": "%y",
    "uu": "%y",
    "MM": "%m",
    "dd": "%d",
    "DDD": "%j",
    "HH": "%H",
    "hh": "%I",
    "mm": "%M",
    "ss": "%S",
}
_PART = re.compile(
    r"''|'(?P<quoted>(?:[^']|'')+)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'])"
)
_OFFSET = re.compile(r"(?:GMT|UTC|UT)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?")


class BucketAssigner(ABC):
    """Decides for each value, in the task, which bucket it goes to.

    A bucket is a directory below the sink's path, ``""`` the path itself. A name that leads out of
    the path fails the job: a name may be computed from data.
    """

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Put all files directly into the sink's path."""
        return _BasePath()

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> BucketAssigner:
        """Put files into directories named after the time of writing."""
        return _DateTime(format_str, timezone_id)

    @abstractmethod
    def assigner(self) -> Callable[[Any], str]:
        """Return the function that gives the bucket of a value; called once per task."""


class _BasePath(BucketAssigner):
    def assigner(self) -> Callable[[Any], str]:
        return lambda value: ""


class _DateTime(BucketAssigner):
    def __init__(self, format_str: str, timezone_id: str | None) -> None:
        compile_pattern(format_str)
        zone_of(timezone_id)
        self._format_str = format_str
        self._timezone_id = timezone_id

    def assigner(self) -> Callable[[Any], str]:
        format_time, zone = compile_pattern(self._format_str), zone_of(self._timezone_id)
        second, bucket = -1, ""

        def assign(value: Any) -> str:
            nonlocal second, bucket
            now = int(time.time())
            if now != second:
                second, bucket = now, format_time(datetime.fromtimestamp(now, zone))
            return bucket

        return assign


def check_bucket(bucket: object, base_path: Location) -> None:
    """Check that a bucket is a directory below a sink's path.

    Raises:
        InvalidBucketError: it is not.
    """
    if reason := _why_invalid(bucket):
        raise InvalidBucketError(bucket, str(base_path), reason)


def _why_invalid(bucket: object) -> str:
    if not isinstance(bucket, str):
        return f"it is of class {type(bucket).__name__}"
    path = PurePosixPath(bucket)
    if path.is_absolute():
        return "it is an absolute path"
    if ".." in path.parts:
        return "it leads out of that path"
    if is_hidden(path):
        return "its name is reserved for unfinished files"
    try:
        is_long = any(len(os.fsencode(part)) > _LONGEST_NAME for part in path.parts)
    except UnicodeEncodeError:
        return "it cannot be encoded as a file name"
    if "\0" in bucket or is_long:
        return f"a file name has no NUL and at most {_LONGEST_NAME} bytes"
    return ""


def compile_pattern(pattern: str) -> Callable[[datetime], str]:
    """Return a function that formats a time; unsupported pattern letters are refused."""
    formatted, position = "", 0
    while position < len(pattern):
        part = _PART.match(pattern, position)
        letters = part["letters"] if part else None
        if part is None or (letters and letters not in _STRFTIME):
            known = ", ".join(_STRFTIME)
            message = f"a bucket's time pattern supports {known} and quoted text; got {pattern!r}"
            raise ValueError(message)
        literal = (part["quoted"] or "").replace("''", "'") or part["other"] or "'"
        formatted += _STRFTIME[letters] if letters else literal.replace("%", "%%")
        position = part.end()
    return lambda when: when.strftime(formatted)


def zone_of(timezone_id: str | None) -> tzinfo | None:
    """Find a zone by its name (``Europe/Vienna``) or offset (``GMT-08:00``); None is local."""
    if timezone_id is None:
        return None
    if offset := _OFFSET.fullmatch(timezone_id):
        distance = timedelta(hours=int(offset["hours"]), minutes=int(offset["minutes"] or 0))
        return timezone(-distance if offset["sign"] == "-" else distance)
    try:
        return ZoneInfo(timezone_id)
    except (ZoneInfoNotFoundError, ValueError):
        message = f"unknown time zone {timezone_id!r}"
        raise ValueError(message) from None
