"""A function that fails at chosen records, once each, also across restarts."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from penstock.datastream.functions import MapFunction


class ScriptedError(Exception):
    """Raised by `ScriptedFailures`; the number of the record is in `args`."""


class ScriptedFailures(MapFunction[Any, Any]):
    """Returns every value unchanged, but raises `ScriptedError` once at each chosen record.

    `on` are numbers of records, starting at 1. Records are counted over all subtasks, processes,
    attempts and runs, in a file below `directory`; records that are processed again after a
    restart count again. So no number occurs twice, and a failure never repeats.
    """

    def __init__(self, directory: str | os.PathLike[str], on: Collection[int]) -> None:
        self._file = str(Path(directory).absolute() / "scripted-failures")
        self._on = frozenset(on)

    def map(self, value: Any) -> Any:
        """Count the record, and raise if its number was chosen."""
        number = self._count()
        if number in self._on:
            raise ScriptedError(number)
        return value

    def _count(self) -> int:
        # Appending is atomic across processes, and moves the offset after the appended byte.
        file = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, b".")
            return os.lseek(file, 0, os.SEEK_CUR)
        finally:
            os.close(file)
