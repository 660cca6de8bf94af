"""Tracks which sink output is referenced by discarded checkpoints only, and may be removed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain

from penstock.checkpoint.coordinator.commit_executor import DiscardedOutput
from penstock.checkpoint.storage.metadata import OperatorSnapshot
from penstock.ids import CheckpointId

_SAVEPOINTS_CHECKED = 4

Output = Mapping[str, Sequence[bytes]]
"""Sink state and committables, by uid."""


class RetainedOutput:
    """Sink state and committables of every retained snapshot; used by one thread.

    Snapshots from before this attempt are known only all together. `read` reads them again, without
    those of some ids; it returns None if one cannot be read, and then nothing may be removed.
    """

    def __init__(
        self,
        read: Callable[[Collection[int]], Output | None],
        is_disposed: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._read = read
        self._is_disposed = is_disposed
        self.earlier = read(())
        """What snapshots from before this attempt reference; None if that is unknown."""
        self._kept: dict[int, Output] = {}
        self._savepoints: deque[int] = deque()
        """The savepoints in `_kept`, in the order in which they are looked at next."""
        self._newest = 0
        """The newest checkpoint."""

    def keep(
        self,
        checkpoint: CheckpointId | int,
        operators: Iterable[OperatorSnapshot],
        *,
        savepoint: bool = False,
    ) -> None:
        """Add a snapshot; a savepoint is kept until its user disposes it."""
        output = {
            o.uid: [*o.sink.state, *(c.data for c in o.sink.committables)]
            for o in operators
            if o.sink is not None
        }
        if not savepoint:
            self._kept[checkpoint] = output
            self._newest = max(self._newest, checkpoint)
        elif any(output.values()):
            self._kept[checkpoint] = output
            self._savepoints.append(checkpoint)

    def forget(self, checkpoints: Sequence[CheckpointId | int]) -> dict[str, DiscardedOutput]:
        """Remove discarded checkpoints and disposed savepoints.

        Returns each sink's output in them and in the retained snapshots.
        """
        gone = [self._kept.pop(c) for c in checkpoints if c in self._kept]
        if len(gone) < len(checkpoints):
            gone.append(self._forget_earlier())
        gone += self._forget_disposed()
        if self.earlier is None:
            return {}
        kept = [self.earlier, *self._kept.values()]
        return {
            uid: DiscardedOutput(_of(uid, gone), _of(uid, kept))
            for uid in sorted(set(chain.from_iterable(gone)))
            if _of(uid, gone)
        }

    def _forget_disposed(self) -> list[Output]:
        """Remove disposed savepoints; looks at a few each time, so that it takes no time."""
        gone = []
        for _ in range(min(_SAVEPOINTS_CHECKED, len(self._savepoints))):
            savepoint = self._savepoints.popleft()
            # What a savepoint holds is committed with the next checkpoint, which holds it too.
            if savepoint < self._newest and self._is_disposed(savepoint):
                gone.append(self._kept.pop(savepoint))
            else:
                self._savepoints.append(savepoint)
        return gone

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
