"""Runs the second phase of the sinks' two-phase commit, in the order of checkpoints.

The journal records that the commits of a checkpoint have started before the first one does: from
then on an older checkpoint is only restored if the user accepts duplicates.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpointStore
from penstock.checkpoint.storage.metadata import CommittableState
from penstock.connectors.contracts.committer import Committer
from penstock.connectors.contracts.committing import commit_all, seconds_before_retry
from penstock.crash_points import CrashPoint, reach
from penstock.ids import CheckpointId

logger = logging.getLogger("penstock.checkpoint")

Committables = Mapping[str, Sequence[CommittableState]]
"""By the uid of the sink."""


@dataclass(frozen=True, slots=True)
class DiscardedOutput:
    """State and committables of one sink: of discarded checkpoints, and of all retained ones."""

    discarded: Sequence[bytes]
    retained: Sequence[bytes]


class CommitExecutor:
    """Commits in a thread of its own; a failure fails the job."""

    def __init__(
        self,
        committers: Mapping[str, Committer],
        names: Mapping[str, str],
        store: CompletedCheckpointStore,
        retries: int,
    ) -> None:
        self._committers = committers
        self._names = names
        self._store = store
        self._retries = retries
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._closing = threading.Event()
        # Only the executor's thread uses these two. What follows a commit that failed or was
        # dropped must not run.
        self._has_failed = False
        self._committed = 0
        """The newest checkpoint of this attempt whose commits are done."""

    def submit(
        self,
        checkpoint: CheckpointId,
        committables: Committables,
        done: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Commit after everything that was submitted before; then call one of the two.

        The checkpoint may hold what the one before was still committing when it completed: that is
        not committed again, because its output may have been moved away since.
        """

        def run() -> None:
            if self._closing.is_set():
                self._has_failed = True
                return
            try:
                self.commit(checkpoint, committables)
                self._committed = max(self._committed, checkpoint)
            except BaseException as error:
                self._has_failed = True
                failed(error)
            else:
                done()
                self._notify_checkpoint_complete()

        self._executor.submit(run)

    def _notify_checkpoint_complete(self) -> None:
        for uid, committer in self._committers.items():
            if self._has_failed or self._closing.is_set():
                return
            try:
                self._store.check_tail()
                committer.notify_checkpoint_complete()
            except Exception as error:
                message = "Sink %s: notify_checkpoint_complete() failed, commits are done: %s"
                logger.warning(message, self._names[uid], error)

    def discard(self, outputs: Mapping[str, DiscardedOutput]) -> None:
        """Let sinks, by uid, remove unneeded output, after everything that was submitted before.

        Never fails the job: the next attempt, or the end of the job, removes what is left.
        """
        if outputs:
            self._executor.submit(self._discard, outputs)

    def _discard(self, outputs: Mapping[str, DiscardedOutput]) -> None:
        if self._has_failed:
            return  # some of it may not be committed
        for uid, output in outputs.items():
            if uid not in self._committers:
                continue
            try:
                self._store.check_tail()
                self._committers[uid].discard(output.discarded, output.retained)
            except Exception:
                name = self._names[uid]
                message = "Sink %s cannot remove old staged output; the next attempt will"
                logger.warning(message, name, exc_info=True)

    def commit(self, checkpoint: CheckpointId, committables: Committables) -> None:
        """Commit everything that a checkpoint holds; may be repeated after a crash anywhere."""
        if not any(committables.values()):
            return
        left = {
            uid: [c for c in pending if c.checkpoint > self._committed]
            for uid, pending in committables.items()
        }
        if any(left.values()):
            self._store.commits_started(checkpoint)
            # After a crash from here on the next attempt repeats all these commits.
            reach(CrashPoint.SINK_COMMITS_STARTED)
        for uid, pending in left.items():
            ordered = sorted(pending, key=lambda c: c.checkpoint)
            self._store.check_tail()
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
        """Wait for the running commit and drop those that have not started.

        Output is still discarded if all commits before it are done: after the end of a job there is
        no next attempt that would remove it.
        """
        self._closing.set()
        self._executor.shutdown(wait=True)

    def _pause(self, retry: int) -> None:
        self._closing.wait(seconds_before_retry(retry))
        # Another driver may have taken the job, and commits the same.
        self._store.check_tail()
