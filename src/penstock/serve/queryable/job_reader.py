"""The open checkpoints of one job: the newest one, and a few older ones that were asked for."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal_entries import CheckpointCompletedEntry, JournalState
from penstock.checkpoint.storage.pins import pin_checkpoint
from penstock.errors import (
    CorruptStateError,
    DisappearedSnapshotError,
    NoCheckpointError,
    NotASnapshotError,
    PenstockError,
    UnknownCheckpointError,
)
from penstock.redaction import redact
from penstock.serve.jobs.cached_job import CachedJob, JobView
from penstock.serve.queryable.open_checkpoint import OpenCheckpoint, OperatorFiles
from penstock.serve.queryable.opt_in import has_opted_in
from penstock.serve.queryable.scratch import Scratch
from penstock.snapshots.queries.operator_queries import OperatorQueries
from penstock.snapshots.stored_snapshot import StoredSnapshot, open_snapshot

logger = logging.getLogger("penstock.serve")

_TRIES = 5
_OLDER = 2
"""Checkpoints that are open besides the newest one."""
_MOST_OPERATORS = 32
"""Of one checkpoint that are opened again in the next one."""
_IDLE_S = 60.0
_MOST_BEHIND_S = 5.0
"""So long after it was seen to be the newest one a checkpoint is shown without a new look."""
_MOST_OPENING_S = 30.0
"""While a newer checkpoint is being opened, the one before is shown for so long."""
_GONE = (DisappearedSnapshotError, NotASnapshotError, CorruptStateError)


class JobReader:
    """Any thread may call; `ready` and `is_due` never wait for files.

    A checkpoint stays open while it is in use. Answers never go back to an older one.
    """

    def __init__(
        self,
        job: CachedJob,
        scratch: Scratch,
        look_every_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._scratch = scratch
        self._look_every_s = look_every_s
        self._monotonic = monotonic
        self._work = threading.Lock()
        """Held while files are opened and closed."""
        self._lock = threading.Lock()
        """Held for a moment; protects the fields below."""
        self._newest: OpenCheckpoint | None = None
        self._view: JobView | None = None
        self._looked = self._confirmed = float("-inf")
        """When the job was looked at, and when `_newest` was its newest checkpoint."""
        self._opening = float("-inf")
        """Since when a newer one is being opened ahead."""
        self._older: OrderedDict[int, OpenCheckpoint] = OrderedDict()
        self._retired: list[OpenCheckpoint] = []
        self._used = monotonic()
        self._is_closed = False

    @property
    def job(self) -> JobDir:
        """The job's directory."""
        return self._job.directory

    @property
    def has_opted_in(self) -> bool:
        """Whether all states of the job are queryable."""
        return has_opted_in(self._view)

    def reads_all(self) -> bool:
        """Look at the job, and return whether all of its states are queryable.

        Raises:
            NoCheckpointError: there is no such job any more.
            OSError: the job cannot be read now.
        """
        with self._work:
            self._look()
        return self.has_opted_in

    @property
    def is_due(self) -> bool:
        """Whether it is time to look for a newer checkpoint."""
        return self._monotonic() - self._looked >= self._look_every_s

    @property
    def is_idle(self) -> bool:
        """Whether it has not been used for a while."""
        return self._monotonic() - self._used > _IDLE_S

    @property
    def is_in_use(self) -> bool:
        """Whether one of its checkpoints is in use."""
        with self._lock:
            mine = [*self._retired, *self._older.values()]
            return any(one.is_used for one in mine) or (
                self._newest is not None and self._newest.is_used
            )

    def look_again(self) -> None:
        """Forget what the newest checkpoint is: it may be gone."""
        with self._lock:
            self._looked = self._confirmed = float("-inf")

    def ready(self) -> OpenCheckpoint | None:
        """Return the newest checkpoint, to be released, if it is open and was looked for lately."""
        with self._lock:
            now = self._monotonic()
            self._used = now
            is_recent = now - self._confirmed <= _MOST_BEHIND_S
            if self._newest is None or self._is_closed:
                return None
            if not (is_recent or now - self._opening <= _MOST_OPENING_S):
                return None
            return self._newest.acquire()

    @contextmanager
    def using(self, checkpoint: int | None = None) -> Iterator[OpenCheckpoint]:
        """Use the newest completed checkpoint, or a given one that the job retains.

        Raises:
            NoCheckpointError, UnknownCheckpointError: the job has none, or not that one.
            CorruptMetadataError: the metadata is damaged.
            OSError: the job cannot be read now.
        """
        used = self._newest_one() if checkpoint is None else self._one(checkpoint)
        try:
            yield used
        finally:
            used.release()

    def open(self, used: OpenCheckpoint, operator: str) -> OperatorQueries:
        """Return the states of an operator in a checkpoint that is being used.

        Raises:
            UnknownOperatorError: there is none with the uid or name.
            DisappearedSnapshotError: the checkpoint was deleted before it could be opened.
        """
        now = self._monotonic()
        found = used.ready(operator, now)
        if found is not None:
            return found
        snapshot = used.snapshot.operator(operator)
        with self._work, self._pinned(used):
            return used.open(snapshot, now)

    def refresh(self) -> None:
        """Look for a newer checkpoint, and open it if there is one.

        Raises: as `using`.
        """
        with self._work:
            if self._monotonic() - self._confirmed <= _MOST_BEHIND_S:
                self._opening = self._monotonic()
            try:
                self._refresh(is_ahead=True)
            finally:
                self._opening = float("-inf")

    def tidy(self) -> None:
        """Close what is not in use any more."""
        with self._work:
            self._tidy()

    def close(self) -> None:
        """Close everything; who still uses a checkpoint gets an error."""
        with self._work:
            with self._lock:
                self._is_closed = True
                mine = [*self._retired, *self._older.values()]
                if self._newest is not None:
                    mine.append(self._newest)
                self._newest, self._retired = None, []
                self._older.clear()
            for one in mine:
                one.close()
            for one in mine:
                one.shared.close()

    def _newest_one(self) -> OpenCheckpoint:
        if (found := self.ready()) is not None:
            return found
        with self._work:
            self._refresh()
            with self._lock:
                if self._newest is None:
                    raise NoCheckpointError(self.job.key)
                return self._newest.acquire()

    def _one(self, number: int) -> OpenCheckpoint:
        with self._lock:
            self._used = self._monotonic()
            # It is open, so it can be read although the job may have deleted it by now.
            if self._newest is not None and self._newest.number == number:
                return self._newest.acquire()
        with self._work:
            self._look()
            state = self._state()
            entry = state.find(number)
            if entry is None:
                known = tuple(one.checkpoint for one in state.completed)
                raise UnknownCheckpointError(self.job.key, number, known)
            found = self._older.get(number)
            if found is None:
                files = OperatorFiles(self._scratch.new())
                found = OpenCheckpoint(self._snapshot(entry), files)
                found.is_committed = _is_committed(state, entry, found)
                self._older[number] = found
            self._older.move_to_end(number)
            found.acquire()
            while len(self._older) > _OLDER:
                self._retired.append(self._older.popitem(last=False)[1])
            self._tidy()
            return found

    def _look(self) -> None:
        """Read the job again, unless that was done just now."""
        now = self._monotonic()
        if self._view is not None and now - self._looked < self._look_every_s:
            return
        view = self._job.read(time.time())
        if view is None:
            raise NoCheckpointError(self.job.key)
        self._view, self._looked = view, now

    def _state(self) -> JournalState:
        assert self._view is not None
        return self._view.state or JournalState()

    def _refresh(self, *, is_ahead: bool = False) -> None:
        for attempt in range(_TRIES):
            self._look()
            state, looked = self._state(), self._looked
            # Newest first: a user may have deleted the savepoint that a job was stopped with.
            candidates = state.restorable[::-1]
            try:
                self._open_newest(candidates, state, is_ahead=is_ahead)
            except _GONE:
                if attempt == _TRIES - 1:
                    raise
                # A newer one has subsumed it since the journal was read.
                self._looked = float("-inf")
                continue
            self._confirmed = looked
            break
        self._tidy()

    def _open_newest(
        self,
        candidates: tuple[CheckpointCompletedEntry, ...],
        state: JournalState,
        *,
        is_ahead: bool,
    ) -> None:
        newest = self._newest
        for number, entry in enumerate(candidates):
            if newest is not None and newest.number == entry.checkpoint:
                newest.is_committed = _is_committed(state, entry, newest)
                return
            try:
                opened = self._opened(entry, is_ahead=is_ahead)
            except NotASnapshotError:
                if entry.savepoint and number + 1 < len(candidates):
                    continue
                raise
            opened.is_committed = _is_committed(state, entry, opened)
            self._replace(opened)
            return
        self._replace(None)

    def _opened(self, entry: CheckpointCompletedEntry, *, is_ahead: bool) -> OpenCheckpoint:
        """Open a checkpoint with the operators that are in use.

        With `is_ahead` the one before answers meanwhile, so there is time for preparations.
        """
        now, newest = self._monotonic(), self._newest
        files = OperatorFiles(self._scratch.new()) if newest is None else newest.shared
        opened = OpenCheckpoint(self._snapshot(entry), files)
        wanted = [] if newest is None else newest.used_since(now - _IDLE_S)[:_MOST_OPERATORS]
        try:
            with self._pinned(opened):
                for uid in wanted:
                    operator = opened.snapshot.metadata.operator(uid)
                    if operator is not None:
                        opened.open(operator, now)
            for uid in opened.open_operators if is_ahead else ():
                if newest is not None and newest.is_busy(uid):
                    opened.prepare(uid)
        except BaseException:
            opened.close()
            raise
        return opened

    def _snapshot(self, entry: CheckpointCompletedEntry) -> StoredSnapshot:
        return open_snapshot(self.job.from_journal_path(entry.path))

    def _replace(self, opened: OpenCheckpoint | None) -> None:
        with self._lock:
            if self._newest is not None:
                self._retired.append(self._newest)
            self._newest = opened

    def _tidy(self) -> None:
        with self._lock:
            unused = [one for one in self._retired if not one.is_used]
            self._retired = [one for one in self._retired if one.is_used]
        for one in unused:
            one.close()
        if not unused:
            return
        left = [*self._retired, *self._older.values()]
        if self._newest is not None:
            left.append(self._newest)
        for files in {id(one.shared): one.shared for one in unused}.values():
            sharing = [one for one in left if one.shared is files]
            files.keep_only(sharing)
            if not sharing:
                files.close()

    @contextmanager
    def _pinned(self, used: OpenCheckpoint) -> Iterator[None]:
        """Keep the files of a checkpoint while they are opened.

        Raises:
            DisappearedSnapshotError: the checkpoint is discarded.
        """
        pin = None
        if not used.snapshot.is_savepoint:
            try:
                pin = pin_checkpoint(self.job, used.number)
            except OSError as error:
                # Who may only read the job reads as fast as it can.
                logger.debug("Checkpoint %s cannot be pinned: %s", used.number, error)
        try:
            yield
        except CorruptStateError:
            if pin is None and not used.snapshot.is_savepoint:
                raise DisappearedSnapshotError(str(used.snapshot.directory)) from None
            raise
        finally:
            if pin is not None:
                pin.release()

    def log(self, error: BaseException) -> None:
        """Log why a newer checkpoint cannot be opened; the one before is shown for a while."""
        if not isinstance(error, PenstockError | OSError):
            logger.warning("State of job %s cannot be opened", self.job.key, exc_info=error)
            return
        message = redact(str(error))
        logger.info("State of job %s cannot be opened now: %s", self.job.key, message)


def _is_committed(
    state: JournalState, entry: CheckpointCompletedEntry, opened: OpenCheckpoint
) -> bool:
    """Whether sinks have committed everything up to a checkpoint."""
    operators = opened.snapshot.metadata.operators
    if not any(o.sink is not None and o.sink.committables for o in operators):
        return True
    return state.committed_upto(entry.attempt) >= entry.checkpoint
