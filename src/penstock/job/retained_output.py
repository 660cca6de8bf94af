"""What sinks may remove: what they had in discarded checkpoints and have in no kept snapshot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain

from penstock.checkpoint.commits import Unneeded
from penstock.checkpoint.metadata import OperatorSnapshot
from penstock.ids import CheckpointId

Output = Mapping[str, Sequence[bytes]]
"""Sink state and committables, by uid."""


class RetainedOutput:
    """What sinks have in every snapshot that is kept; for one thread.

    Snapshots from before this attempt are known all together. ``read`` reads them anew, without
    those of some ids. If it cannot say what one of them needs, nothing may be removed.
    """

    def __init__(self, read: Callable[[Collection[int]], Output | None]) -> None:
        self._read = read
        self._earlier = read(())
        self._kept: dict[int, Output] = {}

    @property
    def earlier(self) -> Output | None:
        """What the snapshots from before this attempt hold; None if that is unknown."""
        return self._earlier

    def keep(self, checkpoint: CheckpointId | int, operators: Iterable[OperatorSnapshot]) -> None:
        """Learn of a snapshot."""
        self._kept[checkpoint] = {
            o.uid: [*o.sink.state, *(c.data for c in o.sink.committables)]
            for o in operators
            if o.sink is not None
        }

    def forget(self, checkpoints: Sequence[CheckpointId | int]) -> dict[str, Unneeded]:
        """Learn that checkpoints are gone; return what each sink had in them and has elsewhere."""
        gone = [self._kept.pop(c) for c in checkpoints if c in self._kept]
        if len(gone) < len(checkpoints):
            gone.append(self._forget_earlier())
        if self._earlier is None:
            return {}
        kept = [self._earlier, *self._kept.values()]
        return {
            uid: Unneeded(_of(uid, gone), _of(uid, kept))
            for uid in sorted(set(chain.from_iterable(gone)))
            if _of(uid, gone)
        }

    def _forget_earlier(self) -> Output:
        try:
            left = self._read(self._kept.keys())
        except OSError:
            left = None
        if left is None or self._earlier is None:
            return {}  # swept later
        before, self._earlier = self._earlier, left
        return {uid: _without(held, left.get(uid, ())) for uid, held in before.items()}


def _of(uid: str, outputs: Iterable[Output]) -> list[bytes]:
    return [data for output in outputs for data in output.get(uid, ())]


def _without(held: Iterable[bytes], left: Iterable[bytes]) -> list[bytes]:
    still = set(left)
    return [data for data in held if data not in still]
