"""How far the sources of an at-most-once job have read, stored before each micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from penstock.common.storage_url import Location, StorageUrl
from penstock.ids import AttemptId, OperatorUid, attempt_number
from penstock.storage.storages import storage_at
from penstock.task.layout import file_name

_SUFFIX = ".json"
_UNNEEDED = 100
"""How many marks that newer ones have replaced are deleted from a store together."""


class ReadProgress:
    """The positions of an at-most-once source, written before each micro-batch is submitted.

    Such a job never reads a record twice: after a restore it continues after the last micro-batch
    that was started, whether or not that one was published.

    Each attempt has a file of its own, and that of the latest attempt counts. So a driver that was
    suspended and replaced cannot move the positions back. In a store each micro-batch has one: a
    request that was sent again because it took too long may still replace what came after it.
    """

    def __init__(
        self,
        place: Location,
        uid: OperatorUid,
        attempt: AttemptId,
        check_owner: Callable[[], None],
    ) -> None:
        """Use the files below a place; `check_owner` reads the journal."""
        self._storage = storage_at(place / "progress")
        self._step = file_name(uid)
        self._attempt = attempt
        self._is_in_store = isinstance(place, StorageUrl)
        self._written = 0
        self._unneeded: list[str] = []
        self._check_owner = check_owner

    def read(self) -> dict[str, int]:
        """Return the positions, none if no micro-batch was ever started.

        Called by an attempt that has won the journal.
        """
        marks = self._marks()
        # Versions that had one file for all attempts wrote the second.
        newest = marks[-1] if marks else f"{self._step}{_SUFFIX}"
        try:
            return msgspec.json.decode(self._storage.read(newest), type=dict[str, int])
        except FileNotFoundError:
            return {}

    def write(self, positions: Mapping[str, int]) -> None:
        """Store durably the positions after a micro-batch that is about to be submitted.

        Raises:
            FencedError: another driver has taken the job; the micro-batch must not be submitted.
        """
        if not self._written:
            self._unneeded = [mark for mark in self._marks() if _order(mark) < (self._number, 0)]
        self._written += 1
        path = f"{self._step}/{self._attempt}{_SUFFIX}"
        if self._is_in_store:
            path = f"{self._step}/{self._attempt}-{self._written:012d}{_SUFFIX}"
        self._storage.replace(path, msgspec.json.encode(positions))
        # In this order: the next driver first appends to the journal and then reads the marks. So
        # either it sees this mark, and skips these records, or this driver sees the next one.
        self._check_owner()
        if self._unneeded and (self._written == 1 or len(self._unneeded) >= _UNNEEDED):
            self._storage.delete_all(self._unneeded)
            self._unneeded = []
        if self._is_in_store:
            self._unneeded.append(path)

    @property
    def _number(self) -> int:
        return attempt_number(self._attempt) or 0

    def _marks(self) -> list[str]:
        """Return the paths of the marks of all attempts, the latest last."""
        found = (f"{self._step}/{name}" for name in self._storage.children(self._step))
        return sorted((path for path in found if _order(path)[0]), key=_order)


def _order(path: str) -> tuple[int, int]:
    """Return the number of the attempt that wrote a mark, 0 if none did, and that of the mark."""
    attempt, _, mark = path.rpartition("/")[2].removesuffix(_SUFFIX).partition("-")
    return attempt_number(attempt) or 0, int(mark or 0)
