"""Values that wait on the driver for the next barrier, in a file per subtask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.connectors.pickled_values import chunks_of_values
from penstock.connectors.staging import load_staged
from penstock.errors import LostStagedFileError
from penstock.ids import is_no_later

__all__ = ["HeldValues", "remove_held_values"]

_SUFFIX = ".values"


class HeldValues:
    """What one subtask published between two barriers.

    Only its attempt needs it, which dies with the driver: nothing is synced. Made by the
    publisher alone, so that no two hands ever write into one file.
    """

    def __init__(self, directory: Path, attempt: str) -> None:
        self._path = directory / f"{attempt}-{uuid4().hex}{_SUFFIX}"
        self._size = 0

    def add(self, staged: bytes) -> None:
        """Take what a task staged; its own file goes with its micro-batch."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            self._size += file.write(load_staged(staged))

    def chunks(self, largest_chunk: int) -> Iterator[list[Any]]:
        """Give the values in order; may be asked again."""
        size = self._path.stat().st_size if self._path.exists() else 0
        if size != self._size:
            raise LostStagedFileError(str(self._path), self._size, size)
        with self._path.open("rb") as file:
            yield from chunks_of_values(file, size, largest_chunk)

    def remove(self) -> None:
        """Forget them."""
        self._path.unlink(missing_ok=True)


def remove_held_values(directory: Path, attempt: str) -> None:
    """Remove what this attempt and older ones have left."""
    for path in directory.glob(f"*{_SUFFIX}"):
        if is_no_later(path.name.partition("-")[0], attempt):
            path.unlink(missing_ok=True)
