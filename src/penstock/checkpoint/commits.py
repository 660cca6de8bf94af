"""The second phase of sinks: what a completed checkpoint owes is committed, in order.

One lane per job attempt. The journal says that commits of a checkpoint have begun before the
first one does: from then on no older checkpoint may be restored without telling the user.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.checkpoint.metadata import CommittableState
from penstock.checkpoint.store import CheckpointStore
from penstock.connectors.committer import Committer
from penstock.connectors.committing import commit_all, seconds_before_retry
from penstock.crash_points import CrashPoint, reach
from penstock.ids import CheckpointId

logger = logging.getLogger("penstock.checkpoint")

Owed = Mapping[str, Sequence[CommittableState]]


@dataclass(frozen=True, slots=True)
class Unneeded:
    """Of one sink, state and committables of discarded checkpoints, and of all that are kept."""

    gone: Sequence[bytes]
    kept: Sequence[bytes]


class CommitLane:
    """Commits in checkpoint order, in a thread of its own; any failure is the job's."""

    def __init__(
        self,
        committers: Mapping[str, Committer],
        names: Mapping[str, str],
        store: CheckpointStore,
        retries: int,
    ) -> None:
        self._committers = committers
        self._names = names
        self._store = store
        self._retries = retries
        self._lane = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._closing = threading.Event()
        self._has_failed = False

    def submit(
        self,
        checkpoint: CheckpointId,
        owed: Owed,
        done: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Commit behind what was submitted before; then call one of the two."""

        def run() -> None:
            try:
                self.commit(checkpoint, owed)
            except BaseException as error:
                self._has_failed = True
                failed(error)
            else:
                done()
                self._settle()

        self._lane.submit(run)

    def _settle(self) -> None:
        for uid, committer in self._committers.items():
            if self._has_failed or self._closing.is_set():
                return
            try:
                committer.settled()
            except Exception as error:
                logger.warning("%s, behind its commits: %s", self._names[uid], error)

    def discard(self, unneeded: Mapping[str, Unneeded]) -> None:
        """Let sinks, by uid, remove what nobody needs, behind what was submitted before.

        Never fails the job: what is left is swept by the next attempt, or at the end.
        """
        if unneeded:
            self._lane.submit(self._discard, unneeded)

    def _discard(self, unneeded: Mapping[str, Unneeded]) -> None:
        if self._has_failed:
            return  # not all that is gone has been committed
        for uid, output in unneeded.items():
            if uid not in self._committers:
                continue
            try:
                self._committers[uid].discard(output.gone, output.kept)
            except Exception:
                name = self._names[uid]
                logger.warning("%s cannot remove what it staged", name, exc_info=True)

    def commit(self, checkpoint: CheckpointId, owed: Owed) -> None:
        """Commit all that a checkpoint holds; safe to repeat after a crash anywhere in it."""
        if not any(owed.values()):
            return
        self._store.commits_start(checkpoint)
        reach(CrashPoint.SINK_COMMITS_STARTED)
        for uid, committables in owed.items():
            ordered = sorted(committables, key=lambda c: c.checkpoint)
            commit_all(
                self._committers[uid],
                [c.data for c in ordered],
                retries=self._retries,
                pause=self._pause,
                step=self._names[uid],
            )
            reach(CrashPoint.SINK_COMMITTED)
        self._store.commits_done(checkpoint)
        reach(CrashPoint.SINK_COMMITS_DONE)

    def close(self) -> None:
        """Let a running commit come to its end, drop those that have not begun."""
        self._closing.set()
        self._lane.shutdown(wait=True, cancel_futures=True)

    def _pause(self, retry: int) -> None:
        self._closing.wait(seconds_before_retry(retry))
