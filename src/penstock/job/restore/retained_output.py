"""Tracks which sink output is referenced by discarded checkpoints only, and may be removed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain

from penstock.checkpoint.coordinator.commit_executor import DiscardedOutput
from penstock.checkpoint.storage.metadata import OperatorSnapshot
from penstock.ids import CheckpointId

Output = Mapping[str, Sequence[bytes]]
"""Sink state and committables, by uid."""


class RetainedOutput:
    """Sink state and committables of every retained snapshot; used by one thread.

    Snapshots from before this attempt are known only all together. `read` reads them again, without
    those of some ids; it returns None if one cannot be read, and then nothing may be removed.
    """

    def __init__(self, read: Callable[[Collection[int]], Output | None]) -> None:
        self._read = read
        self.earlier = read(())
        """What snapshots from before this attempt reference; None if that is unknown."""
        self._kept: dict[int, Output] = {}

    def keep(self, checkpoint: CheckpointId | int, operators: Iterable[OperatorSnapshot]) -> None:
        """Add a snapshot."""
        self._kept[checkpoint] = {
            o.uid: [*o.sink.state, *(c.data for c in o.sink.committables)]
            for o in operators
            if o.sink is not None
        }

    def forget(self, checkpoints: Sequence[CheckpointId | int]) -> dict[str, DiscardedOutput]:
        """Remove discarded checkpoints; return each sink's output in them and in retained ones."""
        gone = [self._kept.pop(c) for c in checkpoints if c in self._kept]
        if len(gone) < len(checkpoints):
            gone.append(self._forget_earlier())
        if self.earlier is None:
            return {}
        kept = [self.earlier, *self._kept.values()]
        return {
            uid: DiscardedOutput(_of(uid, gone), _of(uid, kept))
            for uid in sorted(set(chain.from_iterable(gone)))
            if _of(uid, gone)
        }

    def _forget_earlier(self) -> Output:
        try:
            left = self._read(self._kept.keys())
        except OSError:
            left = None
        if left is None or self.earlier is None:
            return {}  # removed by a later sweep
        before, self.earlier = self.earlier, left
        still = {uid: set(left.get(uid, ())) for uid in before}
        return {uid: [d for d in held if d not in still[uid]] for uid, held in before.items()}


def _of(uid: str, outputs: Iterable[Output]) -> list[bytes]:
    return [data for output in outputs for data in output.get(uid, ())]
