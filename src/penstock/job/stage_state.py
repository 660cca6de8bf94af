"""The state of a stage, as the driver keeps it: a version per subtask, folded now and then."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import msgspec

from penstock.checkpoint.file_keeper import FileKeeper
from penstock.checkpoint.metadata import OperatorTime
from penstock.crash_points import CrashPoint, reach
from penstock.graph.plan import Stage
from penstock.ids import AttemptId
from penstock.job import state_jobs
from penstock.job.settings import JobSettings
from penstock.job.state_jobs import ExportWork, FoldWork
from penstock.job.submitter import Submitter
from penstock.savepoint.layout import SavedOperator
from penstock.savepoint.read import verify_files
from penstock.savepoint.write import keep_files
from penstock.state.backends.base import LocalSnapshot, RemotePlace, StagedName, StateRef
from penstock.state.backends.registry import backend_named
from penstock.state.files import check_there
from penstock.state.savepoint_file import SavepointFile
from penstock.task.layout import Layout
from penstock.task.messages import Acknowledgement

logger = logging.getLogger("penstock.job")

_PROVEN_AT_ONCE = 4
_MOST_DELTAS = 8


@dataclass(frozen=True, slots=True)
class RestoredStage:
    """What a stage begins with."""

    version: int = 0
    """The micro-batch whose effects are in it."""
    keyed: Sequence[StateRef] = ()
    operator_state: Sequence[Mapping[str, bytes]] = ()
    """Per subtask, by operator uid."""
    is_restored: bool = False
    is_durable: bool = False
    """Whether the files of the keyed state are those of a checkpoint, which proved them."""
    time: Mapping[str, OperatorTime] = field(default_factory=dict)
    """By operator uid."""


@dataclass(frozen=True, slots=True)
class FrozenState:
    """A stage's state at a cut; nothing it names will change."""

    version: int
    keyed: list[StateRef]
    snapshots: list[LocalSnapshot | None]
    operator_state: list[dict[str, bytes]]


@dataclass(frozen=True, slots=True)
class DurableState:
    """A frozen state that survives anything, as a checkpoint keeps it."""

    refs: list[StateRef]
    new_bytes: list[int]
    """Per subtask, what had to be written for it."""
    handed_over: Callable[[], None] = lambda: None
    """Lets go of the files, which somebody else holds now."""


@dataclass(slots=True)
class _Folding:
    thread: threading.Thread | None = None
    folded: list[StateRef | None] = field(default_factory=list)


class StageState:
    """Which version each subtask's state is at.

    Called by the stage's loop; `make_durable` and `export` by its lane. Folding runs in a thread of
    its own, beside micro-batches; its result is taken over between two of them.
    """

    def __init__(
        self,
        stage: Stage,
        layout: Layout,
        settings: JobSettings,
        submitter: Submitter,
        files: FileKeeper,
        restored: RestoredStage,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._stage = stage
        self._layout = layout
        self._submitter = submitter
        self._files = files
        self._fold_after = settings.compact_after_deltas
        self._synchronous = settings.synchronous_snapshots
        self._incremental = settings.incremental
        self._backend_name = settings.backend
        self._backend = backend_named(settings.backend, stage.head.name)
        self._keeps = stage.head.kind.is_keyed and not settings.batch_mode
        self._refs: list[StateRef] = []
        if self._keeps:
            fresh = [StateRef(version=0)] * stage.parallelism
            self._refs = list(restored.keyed) or fresh
        self._operator_state: list[dict[str, bytes]] = [
            dict(s) for s in restored.operator_state
        ] or [{} for _ in range(stage.parallelism)]
        self._snapshots: list[LocalSnapshot | None] = [None] * stage.parallelism
        self.version = restored.version
        self.is_restored = restored.is_restored
        self._folding = _Folding()
        self._lock = threading.Lock()
        self._uploaded: list[tuple[str, list[StateRef | None]]] = []
        self._uploads = count(1)
        self._proven: list[set[str]] = [
            {f.name for f in ref.files} if restored.is_durable else set() for ref in self._refs
        ]
        """Per subtask, files that were read back and synced since this attempt began."""
        self._hold_live()

    @property
    def attempt(self) -> AttemptId:
        """Whose state this is."""
        return self._layout.attempt

    @property
    def backend_name(self) -> str | None:
        """The backend of the stage's keyed state, None if it keeps none."""
        return self._backend_name if self._keeps else None

    def ref(self, subtask: int) -> StateRef | None:
        """Return what a subtask's next micro-batch starts from."""
        return self._refs[subtask] if self._refs else None

    def operator_state(self, subtask: int) -> dict[str, bytes]:
        """Return what the functions of a subtask keep, by operator uid."""
        return self._operator_state[subtask]

    def wants_snapshot(self, *, at_barrier: bool) -> bool:
        """Whether the tasks of the next micro-batch shall take a local snapshot."""
        if not self._refs or not self._backend.wants_snapshots:
            return False
        return at_barrier or (self._folding.thread is None and self._has_many_deltas())

    def after(self, batch: int, acks: Sequence[Acknowledgement]) -> list[StateRef]:
        """Return the refs as they will be once the micro-batch is published."""
        if not self._refs:
            return []
        pairs = zip(self._refs, acks, strict=True)
        return [self._backend.publish(ref, batch, ack.state) for ref, ack in pairs]

    def accept(self, batch: int, refs: list[StateRef], acks: Sequence[Acknowledgement]) -> None:
        """Go on from here: the micro-batch is published."""
        self.version = batch
        self._refs = refs
        self._snapshots = [ack.snapshot for ack in acks]
        for mine, ack in zip(self._operator_state, acks, strict=True):
            mine.update(ack.operator_state)
        self._hold_live()

    def freeze(self) -> FrozenState:
        """Return the present version as a checkpoint may keep it; the synchronous phase."""
        self.take_folded()
        if self._synchronous and self._refs and not self._backend.wants_snapshots:
            folded = self._submitter.each(
                self._stage.id, "fold", state_jobs.fold, self._fold_work(self._refs)
            )
            self._rebase(folded)
        snapshots, self._snapshots = self._snapshots, [None] * self._stage.parallelism
        return FrozenState(
            self.version,
            [self._backend.freeze(ref) for ref in self._refs],
            snapshots,
            [dict(s) for s in self._operator_state],
        )

    def files(self, refs: Sequence[StateRef]) -> list[Path]:
        """Return the files that some refs, one per subtask, need."""
        return [
            path
            for subtask, ref in enumerate(refs)
            for path in self._backend.files(self.place(subtask).here(), ref)
        ]

    def make_durable(self, frozen: FrozenState) -> DurableState:
        """Make a frozen state survive anything; the asynchronous phase, in the stage's lane."""
        number = next(self._uploads)
        mine, loops = self._holder(f"persist-{number}"), self._holder(f"upload-{number}")
        refs = frozen.keyed
        try:
            if any(s is not None for s in frozen.snapshots):
                work = self._fold_work(refs, frozen.snapshots)
                folded = self._submitter.each(self._stage.id, "upload", state_jobs.fold, work)
                refs = [self._backend.rebase(r, f) for r, f in zip(refs, folded, strict=True)]
                # Two need the new files: this checkpoint, and the loop that goes on from them.
                self._files.hold(mine, self.files(refs))
                self._files.hold(loops, self.files(refs))
                with self._lock:
                    self._uploaded.append((loops, folded))
            with ThreadPoolExecutor(_PROVEN_AT_ONCE) as pool:
                new = list(pool.map(self._prove, range(len(refs)), refs))
        except BaseException:
            self._files.release(mine)
            raise
        return DurableState(refs, new, partial(self._files.release, mine))

    def _prove(self, subtask: int, ref: StateRef) -> int:
        """Sync and read back what is new in a ref; return how many bytes that is."""
        known, place = self._proven[subtask], self.place(subtask).here()
        for file in ref.files:
            if file.name in known:
                check_there(place, file)
        self._backend.sync(place, ref, known)
        self._backend.verify(place, ref, known)
        self._proven[subtask] = {f.name for f in ref.files}
        new = sum(f.size for f in ref.files if f.name not in known)
        return new + len(ref.inline or b"")

    def export(self, frozen: FrozenState, target: Path, key_type: str) -> list[SavepointFile]:
        """Write a frozen state into a savepoint; in the stage's lane."""
        if not frozen.keyed:
            return []
        head = self._stage.head
        now = int(self._clock() * 1000)
        operator = SavedOperator(head.uid, key_type, head.max_parallelism)
        work = [
            ExportWork(
                self._backend_name, self.place(i), ref, operator, target, i, self._name(i), now
            )
            for i, ref in enumerate(frozen.keyed)
        ]
        parts = self._submitter.each(self._stage.id, "export", state_jobs.export, work)
        files = keep_files(target, (file for part in parts for file in part))
        verify_files(target, files)
        reach(CrashPoint.SAVEPOINT_WRITTEN)
        return files

    def start_folding(self) -> None:
        """Fold deltas into new bases, in the background, if there are many."""
        if self._folding.thread is not None or not self._has_many_deltas():
            return
        if self._backend.wants_snapshots and not any(self._snapshots):
            return
        work = self._fold_work(self._refs, self._snapshots)
        self._files.hold(self._holder("fold"), self.files(self._refs))
        thread = threading.Thread(
            target=self._fold, args=(work,), name=f"fold-{self._stage.id}", daemon=True
        )
        self._folding = _Folding(thread)
        thread.start()

    def take_folded(self) -> None:
        """Change over to new bases, between micro-batches: no task reads the old files now."""
        with self._lock:
            uploaded, self._uploaded = self._uploaded, []
        for holder, folded in uploaded:
            self._rebase(folded)
            self._files.release(holder)
        folding = self._folding
        if folding.thread is not None and not folding.thread.is_alive():
            self._folding = _Folding()
            self._rebase(folding.folded)
            self._files.release(self._holder("fold"))

    def close(self) -> None:
        """Wait for a fold that still runs."""
        if self._folding.thread is not None:
            self._folding.thread.join()

    def place(self, subtask: int) -> RemotePlace:
        """Return where a subtask's state lies."""
        return self._layout.place(self._stage.head.uid, subtask)

    def _rebase(self, folded: Sequence[StateRef | None]) -> None:
        for subtask, base in enumerate(folded):
            if base is not None:
                self._refs[subtask] = self._backend.rebase(self._refs[subtask], base)
        self._hold_live()

    def _has_many_deltas(self) -> bool:
        return any(is_worth_folding(ref, self._fold_after) for ref in self._refs)

    def _fold_work(
        self,
        refs: Sequence[StateRef],
        snapshots: Sequence[LocalSnapshot | None] = (),
    ) -> list[FoldWork]:
        given = list(snapshots) or [None] * len(refs)
        return [
            FoldWork(
                self._backend_name,
                self._incremental,
                self.place(i),
                _as_of(ref, given[i]),
                self._name(i),
                given[i],
            )
            for i, ref in enumerate(refs)
        ]

    def _name(self, subtask: int) -> StagedName:
        return StagedName(self._layout.attempt, self.version, 0, subtask, 0)

    def _fold(self, work: list[FoldWork]) -> None:
        try:
            folded = self._submitter.each(self._stage.id, "fold", state_jobs.fold, work)
            self._folding.folded = folded
        except Exception as error:
            # The deltas are all still there: folding again later is as good.
            logger.warning("stage %r: folding its state failed: %s", self._stage.name, error)

    def _hold_live(self) -> None:
        if self._refs:
            self._files.hold(self._holder("live"), self.files(self._refs))

    def _holder(self, why: str) -> str:
        return f"{why}-{self._stage.head.uid}"


def _as_of(ref: StateRef, snapshot: LocalSnapshot | None) -> StateRef:
    """Return the version that a snapshot holds.

    A task takes it before it works, so it lacks the delta of the micro-batch it was taken in; that
    one is kept beside what becomes of the snapshot.
    """
    if snapshot is None or snapshot.version >= ref.version:
        return ref
    if ref.base_version is not None and ref.base_version > snapshot.version:
        return ref
    deltas = tuple(d for d in ref.deltas if d.version <= snapshot.version)
    return msgspec.structs.replace(ref, version=snapshot.version, deltas=deltas)


def is_worth_folding(ref: StateRef, after: int) -> bool:
    """Decide whether a state's deltas should become a base.

    A new base is as large as the state, and the next checkpoint has to write it: small changes
    of a large state are left to gather until they make up half of it, unless they are very many.
    """
    if len(ref.deltas) < after:
        return False
    changed = sum(delta.size for delta in ref.deltas)
    base = sum(file.size for file in ref.files) - changed
    return 2 * changed >= base or len(ref.deltas) >= _MOST_DELTAS * after
