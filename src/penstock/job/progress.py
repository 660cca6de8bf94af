"""How far a source has been read, written down before it is: for at-most-once jobs.

Such a job never reads a record twice. So before a micro-batch runs its end is put here, and a
restored job goes on behind it, whatever became of that micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.ids import OperatorUid
from penstock.task.layout import file_name


class Progress:
    """The positions behind the last micro-batch of a source that was started."""

    def __init__(self, directory: Path, uid: OperatorUid) -> None:
        self._path = directory / "progress" / f"{file_name(uid)}.json"

    def read(self) -> dict[str, int]:
        """Return the positions, none if nothing was ever started."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            return {}

    def write(self, positions: Mapping[str, int]) -> None:
        """Put the end of a micro-batch down, before it is submitted."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        staged = self._path.with_suffix(".new")
        staged.write_bytes(msgspec.json.encode(positions))
        staged.replace(self._path)
