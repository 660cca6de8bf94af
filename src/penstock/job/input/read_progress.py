"""How far the sources of an at-most-once job have read, stored before each micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from penstock.ids import AttemptId, OperatorUid, attempt_number
from penstock.storage.durable_files import make_directory, replace_file
from penstock.task.layout import file_name

_SUFFIX = ".json"


class ReadProgress:
    """The positions of an at-most-once source, written before each micro-batch is submitted.

    Such a job never reads a record twice: after a restore it continues after the last micro-batch
    that was started, whether or not that one was published.

    Each attempt has a file of its own, and that of the latest attempt counts. So a driver that was
    suspended and replaced cannot move the positions back.
    """

    def __init__(
        self,
        directory: Path,
        uid: OperatorUid,
        attempt: AttemptId,
        check_owner: Callable[[], None],
    ) -> None:
        """Use the files below a directory; `check_owner` reads the journal."""
        self._directory = directory / "progress" / file_name(uid)
        self._path = self._directory / f"{attempt}{_SUFFIX}"
        # Written by versions that had one file for all attempts.
        self._old = self._directory.with_suffix(_SUFFIX)
        self._check_owner = check_owner

    def read(self) -> dict[str, int]:
        """Return the positions, none if no micro-batch was ever started.

        Called by an attempt that has won the journal.
        """
        marks = self._marks()
        newest = marks[-1] if marks else self._old
        try:
            return msgspec.json.decode(newest.read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            return {}

    def write(self, positions: Mapping[str, int]) -> None:
        """Store durably the positions after a micro-batch that is about to be submitted.

        Raises:
            FencedError: another driver has taken the job; the micro-batch must not be submitted.
        """
        make_directory(self._directory)
        replace_file(self._path, msgspec.json.encode(positions))
        # In this order: the next driver first appends to the journal and then reads the marks. So
        # either it sees this mark, and skips these records, or this driver sees the next one.
        self._check_owner()
        for older in self._marks():
            if _number(older) < _number(self._path):
                older.unlink(missing_ok=True)

    def _marks(self) -> list[Path]:
        """Return the files of all attempts, that of the latest attempt last."""
        found = self._directory.glob(f"a*{_SUFFIX}")
        return sorted((path for path in found if _number(path)), key=_number)


def _number(path: Path) -> int:
    return attempt_number(path.stem) or 0
