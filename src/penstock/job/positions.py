"""What sources may forget: everything before the oldest position somebody could go back to."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from penstock.checkpoint.metadata import OperatorSnapshot, SourceState
from penstock.ids import CheckpointId

Positions = Mapping[str, int]


class RetainedPositions:
    """The positions of all sources in every snapshot that is kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, dict[str, Positions | None]] = {}
        """None for a source whose files are in the snapshot itself, which needs no others."""

    def keep(self, checkpoint: CheckpointId | int, operators: Iterable[OperatorSnapshot]) -> None:
        """Learn of a snapshot."""
        mine = {o.uid: _needed(o.source) for o in operators if o.source is not None}
        with self._lock:
            self._kept[checkpoint] = mine

    def forget(self, checkpoints: Iterable[CheckpointId | int]) -> None:
        """Learn that snapshots are gone."""
        with self._lock:
            for checkpoint in checkpoints:
                self._kept.pop(checkpoint, None)

    def lowest(self, uid: str) -> dict[str, int]:
        """Return, per split of a source, below what nothing will be asked for again."""
        with self._lock:
            asked = [positions.get(uid, {}) for positions in self._kept.values()]
        kept = [positions for positions in asked if positions is not None]
        if not kept:
            return {}
        # A snapshot without a split was taken before anything of it was read.
        splits = set.intersection(*(set(positions) for positions in kept))
        return {split: min(positions[split] for positions in kept) for split in splits}


def _needed(source: SourceState) -> Positions | None:
    is_alone = source.kept is not None and source.kept.is_in_snapshot
    return None if is_alone else source.positions
