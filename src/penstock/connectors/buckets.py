"""Which directory of a file sink a value goes to."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Any

from penstock.connectors.java_time_pattern import compile_pattern, zone_of

__all__ = ["BucketAssigner"]


class BucketAssigner(ABC):
    """Decides for each value, in the task, which bucket it goes to.

    A bucket is a directory below the sink's path, ``""`` the path itself.
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
        """Make the function that names the bucket of a value, for one task."""


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
        spell, zone = compile_pattern(self._format_str), zone_of(self._timezone_id)
        second, bucket = -1, ""

        def assign(value: Any) -> str:
            nonlocal second, bucket
            now = int(time.time())
            if now != second:
                second, bucket = now, spell(datetime.fromtimestamp(now, zone))
            return bucket

        return assign
