"""What a run of a job is given, and what is written down of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from penstock.checkpoint.history import History
from penstock.checkpoint.job_dir import JobDir, JobFacts
from penstock.checkpoint.journal import EndStatus, Journal, JournalState, StartFailed
from penstock.checkpoint.settings import CheckpointSettings, Retention
from penstock.checkpoint.store import CheckpointStore
from penstock.errors import PenstockError
from penstock.graph.groups import Group
from penstock.graph.plan import Plan
from penstock.ids import AttemptId, ChannelId, CheckpointId
from penstock.job.kept_snapshots import KeptSnapshots
from penstock.job.settings import JobSettings
from penstock.job.submitter import Submitter
from penstock.recovery.lease import Lease
from penstock.recovery.restart import RestartStrategy
from penstock.state.local_dir import HostDir
from penstock.task.layout import Layout

logger = logging.getLogger("penstock.job")


@dataclass(frozen=True, slots=True)
class JobParts:
    """What a run works with; made once by the launch."""

    plan: Plan
    settings: JobSettings
    checkpoints: CheckpointSettings
    restart: RestartStrategy
    job_dir: JobDir
    work_dir: Path
    """Seen by driver and tasks; what lies there is of use to one attempt only."""
    local_dir: HostDir
    fresh: bool
    program: JobFacts
    group: Callable[[Plan, Collection[ChannelId]], tuple[Group, ...]]
    """Says which stages run together, if some channels must have a log; once per attempt."""
    make_submitter: Callable[[tuple[Group, ...], Layout], Submitter]
    clock: Callable[[], float]
    """Processing time, in seconds."""


class Books:
    """A job's journal, history, lease and snapshots, opened once for a run."""

    def __init__(self, parts: JobParts) -> None:
        self._parts = parts
        self._dir = parts.job_dir
        self.history = History(
            self._dir.storage,
            checkpoints_kept=max(parts.checkpoints.checkpoint_history, 100),
            exceptions_kept=parts.checkpoints.exception_history,
        )
        self.journal = Journal(self._dir.storage, self._dir.key)
        self.kept = KeptSnapshots(self._dir, self.journal)
        self.lease = Lease(self._dir, parts.checkpoints.heartbeat_interval_s)

    def store(self, attempt: AttemptId, life: str, restored: int = 0) -> CheckpointStore:
        """Return the checkpoints as an attempt that has won the journal uses them.

        Their ids go on behind that of the snapshot it begins with, whosever that is.
        """
        return CheckpointStore(
            self._dir,
            self.journal,
            attempt,
            self._parts.plan.job_name,
            self._parts.checkpoints.retained,
            self.history,
            life,
            restored,
        )

    def start_failed(self, attempt: AttemptId) -> None:
        """Write down that an attempt ended before it ran; never raises.

        Nothing to write if it did not win the journal. Without the entry the next attempt begins
        with the same snapshot, as after a kill.
        """
        if self.journal.attempt != attempt:
            return
        try:
            self.journal.append(StartFailed(attempt, time.time()))
        except (PenstockError, OSError) as error:
            logger.warning("that the job did not start cannot be written down: %s", error)

    def tidy(self, ended: JournalState) -> None:
        """Delete what is left of a life that is over, unless its checkpoints were to be kept.

        Called by an attempt that has won the journal, with what it says of that life's end; may be
        cut off and called again. Those of older lives that were kept, or left alone by a fresh
        start, are not touched.
        """
        assert ended.ended is not None
        assert self.journal.attempt is not None
        keeps = self._parts.checkpoints.retention is Retention.RETAIN_ON_CANCELLATION
        if ended.ended.status is EndStatus.CANCELED and keeps:
            return
        self.journal.check_tail()
        life = "" if ended.last_attempt is None else ended.last_attempt.life
        mine = [CheckpointId(c.checkpoint) for c in ended.restorable if not c.savepoint]
        self.store(AttemptId(self.journal.attempt), life).discard(mine)
        self.kept.remove_uncounted()
        self.kept.sweep()
        if life:
            self.kept.forget_life(life)
