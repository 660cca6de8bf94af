"""Contract of committers, the second phase of a two-phase commit.

The first phase is the pre-commit at the barrier (`SinkPublisher.at_barrier`): it returns
*committables*, bytes that name finished but invisible output. They are part of the checkpoint. Once
that is complete, a *committer* makes them visible.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.common.storage_url import StorageUrl

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation


class CommitOutcome(Enum):
    """What a committer signalled for one request."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already committed"
    RETRY_LATER = "retry later"
    FAILED = "failed"
    UNKNOWN = "unknown"


class CommitRequest:
    """The request to commit one committable, as in Flink.

    The committer signals the outcome with at most one of the methods; no signal means that it is
    committed.
    """

    __slots__ = ("_committable", "_retries", "error", "outcome")

    def __init__(self, committable: bytes) -> None:
        self._committable = committable
        self._retries = 0
        self.outcome: CommitOutcome | None = None
        """What the committer signalled; None if nothing."""
        self.error: BaseException | None = None
        """The reason of a failure or retry, if the committer gave one."""

    def get_committable(self) -> bytes:
        """Return what to commit."""
        return self._committable

    def get_number_of_retries(self) -> int:
        """Return how often this was retried, not counting crashes; 0 the first time."""
        return self._retries

    def signal_already_committed(self) -> None:
        """Signal that an earlier call had committed this, possibly in a process that died."""
        self.outcome = CommitOutcome.ALREADY_COMMITTED

    def retry_later(self, error: BaseException | None = None) -> None:
        """Request another call after a pause; repeating what was done so far must be harmless.

        The error is the reason, which is reported if retries run out.
        """
        self.outcome, self.error = CommitOutcome.RETRY_LATER, error

    def update_and_retry_later(
        self, committable: bytes, error: BaseException | None = None
    ) -> None:
        """Request another call with another committable in place of this one.

        After a crash the original committable is committed again.
        """
        self._committable = committable
        self.retry_later(error)

    def signal_failed_with_known_reason(self, error: BaseException) -> None:
        """Signal that this can never be committed: the job fails with this reason."""
        self.outcome, self.error = CommitOutcome.FAILED, error

    def signal_failed_with_unknown_reason(self, error: BaseException) -> None:
        """Signal that it is unknown whether this is committed: the job fails and commits again."""
        self.outcome, self.error = CommitOutcome.UNKNOWN, error

    def begin_retry(self) -> None:
        """Reset the signal before the next call; only the engine calls this."""
        self._retries += 1
        self.outcome = self.error = None


@dataclass(frozen=True, slots=True)
class CommitterContext:
    """What a committer may know about its job and step.

    ``name`` is the step's name; ``work_dir``, ``store``, ``job_instance`` and ``type_info`` are
    those of its publisher. ``storage_options`` reach a store that a restored snapshot names.
    """

    job: str
    attempt: str
    name: str
    work_dir: Path
    job_instance: str = ""
    type_info: TypeInformation | None = None
    store: StorageUrl | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)


class Committer(ABC):
    """Makes committables visible, on the driver.

    There is one per sink and attempt of the job. Its methods are never called concurrently, but
    possibly by another thread (the commit executor) than the publisher's.
    """

    @abstractmethod
    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Commit, and signal the outcome on each request.

        Called in the order of checkpoints, once the journal says that a checkpoint is complete, and
        for a restored checkpoint before any record is processed. Any call may repeat: after a crash
        during or after it, or because two checkpoints hold the same committable. Repeating must
        neither make output visible twice nor fail. After an exception, the outcome of requests
        without a signal is unknown.
        """

    def notify_checkpoint_complete(self) -> None:  # noqa: B027
        """Learn that a checkpoint is complete and everything up to it is committed.

        Called after each such checkpoint, also if there was nothing to commit; for periodic work,
        such as keeping alive what a server would expire. May never be called. An exception is
        logged and fails nothing.
        """

    def discard(  # noqa: B027
        self, discarded: Sequence[bytes], retained: Sequence[bytes]
    ) -> None:
        """Remove what only discarded checkpoints needed, so that it does not accumulate.

        ``discarded`` are all committables and all sink state of checkpoints that can no longer be
        restored; ``retained`` those of every retained snapshot, including the newest checkpoint.
        What ``retained`` names must stay, and so must everything staged since. Called while the job
        runs, after everything in ``discarded`` is committed, or when it never will be because the
        job fell back from that checkpoint. May repeat, and may never be called: what a crash leaves
        is removed by :meth:`sweep`.
        """

    def sweep(self, keep: Sequence[bytes]) -> None:  # noqa: B027
        """Remove all staged output of this job and step that no snapshot needs.

        ``keep`` are all committables and all sink state that a retained checkpoint, a savepoint or
        the running attempt may still need. Called while no task of the job runs: before the first
        micro-batch, once a restore has committed everything; and at the end, after the last commit.
        May repeat.
        """

    def close(self) -> None:  # noqa: B027
        """Release resources; called once, also after an error."""
