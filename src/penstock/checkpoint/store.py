"""Completed checkpoints on disk: written, read back, won at the journal, kept, deleted."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from penstock import __version__
from penstock.checkpoint.cut import Passing
from penstock.checkpoint.history import (
    CheckpointRecord,
    History,
    OperatorRecord,
    RecordStatus,
)
from penstock.checkpoint.job_dir import JobDir
from penstock.checkpoint.journal import (
    CheckpointCompleted,
    CheckpointDiscarded,
    CheckpointIdsReserved,
    CommitsDone,
    CommitsStarted,
    Journal,
)
from penstock.checkpoint.metadata import (
    JOB_DIRECTORY,
    LIFE,
    CheckpointMetadata,
    OperatorSnapshot,
    full_bytes,
    new_bytes,
)
from penstock.checkpoint.metadata_codec import decode_metadata, encode_metadata
from penstock.checkpoint.pending import PendingCheckpoint
from penstock.checkpoint.storage import LocalStorage
from penstock.checkpoint.story import StoryEvent
from penstock.errors import CorruptMetadataError
from penstock.ids import AttemptId, CheckpointId

logger = logging.getLogger("penstock.checkpoint")

_RESERVED_AT_ONCE = 10
_LONG_S = 1.0


@dataclass(frozen=True, slots=True)
class Completed:
    """A checkpoint or savepoint that counts."""

    checkpoint: CheckpointId
    path: str
    is_savepoint: bool
    crc: int
    triggered: float
    seconds: float
    new_bytes: int
    full_bytes: int

    def __str__(self) -> str:
        kind = "savepoint" if self.is_savepoint else "checkpoint"
        return (
            f"{kind} {self.checkpoint} completed in {self.seconds:.2f} s: "
            f"{self.new_bytes:,} bytes new, {self.full_bytes:,} in all"
        )


class CheckpointStore:
    """The job's directory as its coordinator uses it; made for an attempt that won the journal.

    Every call that changes what counts goes through the journal first, and so fails for a driver
    that others have taken over from.
    """

    def __init__(
        self,
        job_dir: JobDir,
        journal: Journal,
        attempt: AttemptId,
        job_name: str,
        retained: int,
        history: History,
        life: str,
        above: int = 0,
    ) -> None:
        """Prepare; ids are higher than `above`, that of another job's snapshot, and all before."""
        self._dir = job_dir
        self._journal = journal
        self._attempt = attempt
        self._job_name = job_name
        self._retained_number = retained
        self._history = history
        self._life = life
        self._lock = threading.RLock()
        self._noted: dict[CheckpointId, tuple[int, Passing]] = {}
        state = journal.state()
        self._next = self._reserved = max(state.highest_id, above)
        self._retained = [CheckpointId(c.checkpoint) for c in state.restorable if not c.savepoint]
        # Checkpoints the job turned away from, by a fresh start or another snapshot, stay: they
        # are of use to their owner only.

    @property
    def retained(self) -> list[CheckpointId]:
        """The checkpoints that are kept, oldest first."""
        return list(self._retained)

    def next_id(self) -> CheckpointId:
        """Return an id that no checkpoint of this job ever had."""
        with self._lock:
            if self._next == self._reserved:
                self._reserved += _RESERVED_AT_ONCE
                self._journal.append(
                    CheckpointIdsReserved(self._attempt, self._reserved, time.time())
                )
            self._next += 1
            return CheckpointId(self._next)

    def write(self, pending: PendingCheckpoint, operators: list[OperatorSnapshot]) -> Completed:
        """Write the metadata, the last of a checkpoint's files, and read it back."""
        now = time.time()
        properties = {LIFE: self._life}
        if pending.is_savepoint:
            properties[JOB_DIRECTORY] = str(self._dir.path)
        metadata = CheckpointMetadata(
            job_id=self._dir.key,
            job_name=self._job_name,
            attempt=self._attempt,
            checkpoint=pending.id,
            kind="savepoint" if pending.is_savepoint else "checkpoint",
            triggered=pending.triggered,
            completed=now,
            penstock_version=__version__,
            operators=operators,
            properties=properties,
        )
        data = encode_metadata(metadata)
        if pending.is_savepoint:
            # First: nothing may look like a savepoint and have nobody who keeps what it needs.
            copy = self._dir.savepoint(pending.id)
            self._dir.storage.create(self._dir.named(str(copy)), data)
        path = pending.request.path or str(self._dir.chk(pending.id))
        LocalStorage(Path(path)).create("_metadata", data)
        read = (Path(path) / "_metadata").read_bytes()
        if read != data or decode_metadata(read, path) != metadata:
            raise CorruptMetadataError(path, "it does not read back as it was written")
        return Completed(
            checkpoint=pending.id,
            path=path,
            is_savepoint=pending.is_savepoint,
            crc=zlib.crc32(data),
            triggered=pending.triggered,
            seconds=now - pending.triggered,
            new_bytes=new_bytes(metadata) + len(data),
            full_bytes=full_bytes(metadata) + len(data),
        )

    def win(self, completed: Completed) -> None:
        """Let a checkpoint count.

        Raises:
            FencedError: another driver has taken over; it does not count.
        """
        with self._lock:
            self._journal.append(
                CheckpointCompleted(
                    checkpoint=completed.checkpoint,
                    attempt=self._attempt,
                    path=self._dir.named(completed.path),
                    savepoint=completed.is_savepoint,
                    metadata_crc=completed.crc,
                    time=time.time(),
                )
            )
            if not completed.is_savepoint:
                self._retained.append(completed.checkpoint)

    def retain(self) -> list[CheckpointId]:
        """Delete the metadata of checkpoints beyond the retained number; return their ids."""
        with self._lock:
            gone = self._retained[: -self._retained_number]
            self._retained = self._retained[-self._retained_number :]
            self.discard(gone)
            return gone

    def discard(self, checkpoints: list[CheckpointId]) -> None:
        """Delete checkpoints for good: first in the journal, then on disk."""
        with self._lock:
            for checkpoint in checkpoints:
                self._journal.append(CheckpointDiscarded(checkpoint, self._attempt, time.time()))
                self._dir.storage.delete_tree(f"chk-{checkpoint}")

    def own_files(self, checkpoint: CheckpointId) -> Path:
        """Return where the files of a checkpoint go that are its own alone."""
        return self._dir.chk(checkpoint)

    def abandon(self, checkpoint: CheckpointId) -> None:
        """Delete what was written for a checkpoint that will never count; may repeat.

        A stage may still write, and call for this again when it is done.
        """
        with self._lock, contextlib.suppress(OSError):
            if checkpoint not in self._retained:
                self._dir.storage.delete_tree(f"chk-{checkpoint}")

    def commits_start(self, checkpoint: CheckpointId) -> None:
        """Write down that sinks may have committed from now on."""
        with self._lock:
            self._journal.append(CommitsStarted(checkpoint, self._attempt, time.time()))

    def commits_done(self, checkpoint: CheckpointId) -> None:
        """Write down that sinks have committed all of it."""
        with self._lock:
            self._journal.append(CommitsDone(checkpoint, self._attempt, time.time()))

    def note_long_ones(self, pending: Iterable[PendingCheckpoint], now: float) -> list[float]:
        """Write down how far those have come that take long, for those who look now.

        Called after all that happens to any of them; each is written when it has come further.
        Returns in how many seconds the others will have taken long. Never fails the job.
        """
        waits = []
        for one in pending:
            left = one.triggered + _LONG_S - now
            stands = len(one.acknowledged), one.passing
            if left > 0:
                waits.append(left)
            elif self._noted.get(one.id) != stands:
                self._noted[one.id] = stands
                self._record(one, RecordStatus.PENDING, None, None)
        return waits

    def record(
        self, pending: PendingCheckpoint, completed: Completed | None, failure: str | None = None
    ) -> None:
        """Write down how a checkpoint went, for those who look later; never fails the job."""
        self._noted.pop(pending.id, None)
        status = RecordStatus.FAILED if completed is None else RecordStatus.COMPLETED
        self._record(pending, status, completed, failure)

    def _record(
        self,
        pending: PendingCheckpoint,
        status: RecordStatus,
        completed: Completed | None,
        failure: str | None,
    ) -> None:
        operators = [o for s in pending.acknowledged.values() for o in s.operators]
        stats = [s for operator in operators for s in operator.stats]
        story = pending.story.lines()
        # Behind its completion older ones are deleted, which is not this one's time.
        ends = [line.time for line in story if line.event is StoryEvent.COMPLETED]
        record = CheckpointRecord(
            id=pending.id,
            kind=pending.request.kind.value,
            status=status,
            attempt=self._attempt,
            triggered=pending.triggered,
            duration_s=(ends[0] if ends else time.time()) - pending.triggered,
            new_bytes=0 if completed is None else completed.new_bytes,
            full_bytes=0 if completed is None else completed.full_bytes,
            operators=[OperatorRecord(o.uid, o.name, o.stats, o.channels) for o in operators],
            path=None if completed is None else completed.path,
            failure=failure,
            story=story,
            barriers=pending.passing.value,
            bytes_held=sum(s.bytes_held for s in stats),
            in_flight_bytes=sum(s.in_flight_bytes for s in stats),
        )
        try:
            self._history.write(record)
        except OSError as error:
            logger.warning("the record of checkpoint %d cannot be kept: %s", pending.id, error)
