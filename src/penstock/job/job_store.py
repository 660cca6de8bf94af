"""The persistent side of a job: journal, history, lease and snapshots."""

from __future__ import annotations

import contextlib
import logging
import time
import zlib

from penstock.checkpoint.history import History
from penstock.checkpoint.settings import Retention
from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpointStore
from penstock.checkpoint.storage.job_dir import METADATA
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import (
    ClaimedDiscarded,
    ClaimedSnapshot,
    DriverProcess,
    JobEnded,
    JournalState,
    StartFailed,
)
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.common.job_status import JobStatus
from penstock.errors import PenstockError
from penstock.ids import AttemptId, CheckpointId
from penstock.job.context import JobContext
from penstock.job.restore.retained_snapshots import RetainedSnapshots
from penstock.recovery.lease import Lease
from penstock.recovery.restore_candidates import discard_claimed
from penstock.storage.storages import storage_at

logger = logging.getLogger("penstock.job")


class JobStore:
    """Opens the journal, history, lease and snapshots of a job once for all attempts."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._dir = context.job_dir
        self.history = History(
            self._dir.storage,
            checkpoints_kept=max(context.checkpoints.checkpoint_history, 100),
            exceptions_kept=context.checkpoints.exception_history,
            longest_text=context.checkpoints.max_exception_text,
        )
        self.journal = Journal(self._dir.storage, self._dir.key)
        self.retained = RetainedSnapshots(self._dir, self.journal)
        self.lease = Lease(self._dir, context.checkpoints.heartbeat_interval_s, self.journal)

    def checkpoints(
        self, attempt: AttemptId, lineage: str, restored: int = 0
    ) -> CompletedCheckpointStore:
        """Return the checkpoint store of an attempt that has won the journal.

        New checkpoint ids are higher than that of the restored snapshot, even of another job.
        """
        return CompletedCheckpointStore(
            self._dir,
            self.journal,
            attempt,
            self._context.plan.job_name,
            self._context.checkpoints.retained,
            lineage,
            restored,
        )

    def start_failed(self, attempt: AttemptId) -> None:
        """Record that an attempt failed before it ran; never raises.

        An attempt that did not win the journal has nothing to record. If the entry is missing, the
        next attempt starts from the same snapshot, as after a killed driver.
        """
        if self.journal.attempt != attempt:
            return
        try:
            self.journal.append(StartFailed(attempt, time.time()))
        except (PenstockError, OSError) as error:
            logger.warning("Attempt %s failed to start; cannot record it: %s", attempt, error)

    def record_end(
        self, status: JobStatus, savepoint: str | None, driver: DriverProcess | None = None
    ) -> None:
        """Record the end of the job, and whether its checkpoints stay.

        That is decided by the settings of the run that ends: a later one may have others.
        """
        # Under the last attempt that won the journal, even if that attempt never ran.
        attempt = self.journal.attempt
        assert attempt is not None
        retention = self._context.checkpoints.retention
        retained = status is JobStatus.FAILED or (
            status is JobStatus.CANCELED and retention is Retention.RETAIN_ON_CANCELLATION
        )
        now = time.time()
        end = JobEnded.of(attempt, status, now, savepoint, retained=retained, driver=driver)
        self.journal.append(end)

    def discard_claimed(self, claimed: ClaimedSnapshot) -> None:
        """Delete a claimed snapshot, which a checkpoint of the job's own has subsumed.

        May be interrupted and repeated. Another snapshot at its path is not deleted.
        """
        assert self.journal.attempt is not None
        self.journal.check_tail()
        path = self._dir.from_journal_path(claimed.path)
        with contextlib.suppress(FileNotFoundError):
            data = storage_at(path).read(METADATA)
            if zlib.crc32(data) == claimed.metadata_crc:
                discard_claimed(path, decode_metadata(data, str(path)), self._dir.options)
        self.journal.append(ClaimedDiscarded(self.journal.attempt, claimed.path, time.time()))

    def tidy(self, ended: JournalState) -> None:
        """Delete the checkpoints and files of a lineage that has ended, unless they are retained.

        Called by an attempt that has won the journal, with the journal as of that end. A crash in
        the middle is repaired by calling it again. Checkpoints of older lineages that were
        retained, or skipped by a fresh start, are not touched, and neither is the one that the
        attempt is started from.
        """
        assert ended.ended is not None
        assert self.journal.attempt is not None
        if ended.ended.retains_checkpoints:
            return
        named = self.retained.named_by_user(self.journal.state())
        lineage = "" if ended.last_attempt is None else ended.last_attempt.lineage
        own = [
            CheckpointId(c.checkpoint)
            for c in (*ended.fallen_back, *ended.restorable)
            if not c.savepoint and c.checkpoint not in named
        ]
        self.checkpoints(AttemptId(self.journal.attempt), lineage).discard(own)
        self.retained.clean_up()
        if lineage:
            self.retained.forget_lineage(lineage)
