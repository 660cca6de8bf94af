"""The second phase of a two-phase commit: what was made durable at a barrier becomes visible.

The first phase is the pre-commit at the barrier (`SinkPublisher.at_barrier`): it gives
*committables*, bytes that name finished but hidden output. They go into the checkpoint, and only
once that is completed is a *committer* asked to make them visible.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

__all__ = ["CommitOutcome", "CommitRequest", "Committer", "CommitterContext"]


class CommitOutcome(Enum):
    """What came of one request to commit."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already committed"
    RETRY_LATER = "retry later"
    FAILED = "failed"
    UNKNOWN = "unknown"


class CommitRequest:
    """One committable on its way to being committed.

    The committer says what came of it, with at most one of the signals; saying nothing means
    that it is committed.
    """

    __slots__ = ("_committable", "_error", "_outcome", "_retries")

    def __init__(self, committable: bytes) -> None:
        self._committable = committable
        self._retries = 0
        self._outcome: CommitOutcome | None = None
        self._error: BaseException | None = None

    def get_committable(self) -> bytes:
        """Return what to commit."""
        return self._committable

    def get_number_of_retries(self) -> int:
        """Return how often this was asked for before, not counting crashes; 0 the first time."""
        return self._retries

    def signal_already_committed(self) -> None:
        """Say that an earlier call had committed this, perhaps one of a process that died."""
        self._outcome = CommitOutcome.ALREADY_COMMITTED

    def retry_later(self, error: BaseException | None = None) -> None:
        """Ask to be called with this again after a pause; what is done so far must not harm.

        The error says what it waits for, in case it waits too long.
        """
        self._outcome, self._error = CommitOutcome.RETRY_LATER, error

    def update_and_retry_later(
        self, committable: bytes, error: BaseException | None = None
    ) -> None:
        """Ask to be called again with something else in its place.

        After a crash it is the old committable that comes again.
        """
        self._committable = committable
        self.retry_later(error)

    def signal_failed_with_known_reason(self, error: BaseException) -> None:
        """Say that this cannot be committed, now or later: the job fails and says why."""
        self._outcome, self._error = CommitOutcome.FAILED, error

    def signal_failed_with_unknown_reason(self, error: BaseException) -> None:
        """Say that nobody knows whether this is committed: the job fails and asks again."""
        self._outcome, self._error = CommitOutcome.UNKNOWN, error

    @property
    def outcome(self) -> CommitOutcome | None:
        """What the committer signalled; None if nothing."""
        return self._outcome

    @property
    def error(self) -> BaseException | None:
        """Why it failed or waits, if it does and the committer said so."""
        return self._error

    def begin_retry(self) -> None:
        """Forget the signal before the committer is called again; for the engine alone."""
        self._retries += 1
        self._outcome = self._error = None


@dataclass(frozen=True, slots=True)
class CommitterContext:
    """What a committer may know of the job and step it commits for.

    ``name`` is the step's name. ``work_dir`` and ``birth`` are those of the step's publisher.
    """

    job: str
    attempt: str
    name: str
    work_dir: Path
    birth: str = ""


class Committer(ABC):
    """Makes committables visible, on the driver.

    There is one per sink and attempt of the job. Its methods are never called at the same
    time, but perhaps by another thread than the publisher's.
    """

    @abstractmethod
    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Commit, and signal on each request what came of it.

        Called in the order of checkpoints, once the journal says that a checkpoint is completed,
        and for restored checkpoints before anything is processed. Any of it may repeat: after a
        crash in the middle, after a crash behind it, with a committable that two checkpoints
        hold. Repeating must neither show anything twice nor fail. An exception leaves open what
        became of the requests without a signal.
        """

    def settled(self) -> None:  # noqa: B027
        """Learn that a checkpoint is completed and all that was owed up to it is committed.

        Called behind every one of them, also if nothing was owed; for what has to be done now and
        then, such as keeping alive what a server would forget. May never come. An exception
        is told in the log, and fails nothing.
        """

    def discard(self, gone: Sequence[bytes], kept: Sequence[bytes]) -> None:  # noqa: B027
        """Remove what only discarded checkpoints needed, so that it does not pile up.

        ``gone`` are all committables and all sink state of checkpoints that nobody can go back to
        any more; ``kept`` are those of every snapshot that is still there, among them the newest
        checkpoint. What ``kept`` names must stay, and so must what was staged since. Called while
        the job runs, behind the commits of all that ``gone`` holds. May repeat, and may never
        come: what a crash leaves is swept.
        """

    def sweep(self, keep: Sequence[bytes]) -> None:  # noqa: B027
        """Remove what this job and step has staged and nobody will ask for any more.

        ``keep`` are all committables and all sink state that some retained checkpoint, savepoint
        or the running attempt may still need. Called when no task of the job runs: after a
        restore has committed everything, before the first micro-batch; and at the end, after the
        last commit. May repeat.
        """

    def close(self) -> None:  # noqa: B027
        """Give back resources; called once, also after an error."""
