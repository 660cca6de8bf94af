"""A function that fails when it is told to, and remembers over restarts that it did."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from penstock.datastream.functions import MapFunction

__all__ = ["ScriptedError", "ScriptedFailures"]


class ScriptedError(Exception):
    """Raised by a function because its script says so; the number of the record is in `args`."""


class ScriptedFailures(MapFunction[Any, Any]):
    """Passes every value on, but raises `ScriptedError` at some records, each time once.

    `on` are numbers of records, 1 the first. They are counted over all subtasks, processes,
    attempts and runs, in a file below `directory`; records that come again after a restart
    count again. So a number that has failed is never met again, whoever dies when.
    """

    def __init__(self, directory: str | os.PathLike[str], on: Collection[int]) -> None:
        self._file = str(Path(directory).absolute() / "scripted-failures")
        self._on = frozenset(on)

    def map(self, value: Any) -> Any:
        """Count the record, and raise if it is one of those."""
        number = self._count()
        if number in self._on:
            raise ScriptedError(number)
        return value

    def _count(self) -> int:
        # Appending is atomic among processes, and leaves the offset behind one's own byte.
        file = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, b".")
            return os.lseek(file, 0, os.SEEK_CUR)
        finally:
            os.close(file)
