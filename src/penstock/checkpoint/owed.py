"""What sinks have prepared and nobody knows to be committed."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checkpoint.metadata import CommittableState
from penstock.ids import CheckpointId


class Owed:
    """Committables by operator uid, in the order of their checkpoints.

    A checkpoint holds every one of them up to its own id, also those of checkpoints that were
    aborted: their records are before its cut.
    """

    def __init__(self) -> None:
        self._by_uid: dict[str, list[CommittableState]] = {}

    def add(self, uid: str, committables: Iterable[CommittableState]) -> None:
        """Learn what a sink prepared at a barrier."""
        self._by_uid.setdefault(uid, []).extend(committables)

    def of(self, uid: str, checkpoint: CheckpointId) -> list[CommittableState]:
        """Return what one sink owes at the cut of a checkpoint."""
        return [c for c in self._by_uid.get(uid, ()) if c.checkpoint <= checkpoint]

    def upto(self, checkpoint: CheckpointId) -> dict[str, list[CommittableState]]:
        """Return what all sinks owe at the cut of a checkpoint."""
        owed = {uid: self.of(uid, checkpoint) for uid in self._by_uid}
        return {uid: committables for uid, committables in owed.items() if committables}

    def all(self) -> dict[str, list[CommittableState]]:
        """Return what all sinks owe."""
        return {uid: list(owed) for uid, owed in self._by_uid.items()}

    def committed(self, checkpoint: CheckpointId) -> None:
        """Forget what was committed with a checkpoint."""
        for uid, committables in self._by_uid.items():
            self._by_uid[uid] = [c for c in committables if c.checkpoint > checkpoint]
