"""The state of a stage on the driver: one version per subtask, compacted from time to time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from penstock.checkpoint.shared_state_registry import StateFilesLease
from penstock.common.storage_url import Location
from penstock.crash_points import CrashPoint, reach
from penstock.graph.plan import Stage
from penstock.job import state_jobs
from penstock.job.context import AttemptContext
from penstock.job.restore.state_restorer import RestoredStage
from penstock.job.snapshot.compaction import BackgroundCompaction, Bases, as_of, is_worth_compacting
from penstock.job.snapshot.run_on_hosts import run_on_hosts
from penstock.job.snapshot.state_in_store import StateInStore
from penstock.job.state_jobs import CompactionWork, ExportWork, VerifyWork
from penstock.job.submitter import R, W
from penstock.recovery.operator_matching import key_type_signature
from penstock.savepoint.layout import SavedOperator
from penstock.savepoint.read import verify_files
from penstock.savepoint.write import finalize_files
from penstock.snapshots.state_parts import CheckpointPart
from penstock.state.backends.refs import (
    LocalSnapshot,
    StagedName,
    StateRef,
    UnresolvedStateLocation,
)
from penstock.state.backends.registry import create_state_backend
from penstock.state.files import check_exists
from penstock.state.key_groups import key_group_range
from penstock.state.savepoint_file import SavepointFile
from penstock.storage.durable_files import make_directory, sync_directory
from penstock.task.messages import Acknowledgement

logger = logging.getLogger("penstock.job")

_VERIFIED_AT_ONCE = 4
_VERIFIED_BY_DRIVER = 16 << 20
"""Up to so many bytes the driver reads back itself: that takes less time than a Spark job."""
_DIRECTORIES_ABOVE = 3
"""Above the state files of a subtask: those of its operator, of all state, and of the job."""


@dataclass(frozen=True, slots=True)
class FrozenState:
    """A stage's state at a barrier; nothing it references will change."""

    version: int
    keyed: list[StateRef]
    snapshots: list[LocalSnapshot | None]
    operator_state: list[dict[str, bytes]]
    files: StateFilesLease
    """Keeps the files of the keyed state."""


@dataclass(frozen=True, slots=True)
class DurableState:
    """A frozen state whose files are synced and verified, as a checkpoint stores it."""

    refs: list[StateRef]
    new_bytes: list[int]
    """Per subtask, how much was written for it."""


@dataclass(frozen=True, slots=True)
class PublishedState:
    """The keyed state after a micro-batch, for readers; its files stay until `release`."""

    batch: int
    published: float
    """When, in seconds since the epoch; the start of the attempt before its first micro-batch."""
    parts: list[CheckpointPart]
    files: StateFilesLease

    def release(self) -> None:
        """End the reading."""
        self.files.release()


class StageState:
    """The version of each subtask's state.

    Called by the region loop, except `make_durable` and `export`, which the stage's checkpoint
    executor calls while the loop continues with later versions, and `published`, which any thread
    calls. What the executor uploads reaches the loop through `_uploaded`, under the lock; readers
    get the version under another one. Everything else belongs to one of the two threads.
    """

    def __init__(self, stage: Stage, context: AttemptContext, restored: RestoredStage) -> None:
        self._stage = stage
        self._layout = context.layout
        self._settings = context.job.settings
        self._checkpoints = context.job.checkpoints
        self._clock = context.job.clock
        self._submitter = context.submitter
        self._registry = context.registry
        self._backend = create_state_backend(self._settings.backend, stage.head.name)
        self.key_type = key_type_signature(stage) if stage.head.kind.is_keyed else ""
        self._refs: list[StateRef] = []
        """Per subtask; empty if the stage has no keyed state."""
        if stage.head.kind.is_keyed and not self._settings.batch_mode:
            self._refs = list(restored.keyed) or [StateRef(version=0)] * stage.parallelism
        self._operator_state: list[dict[str, bytes]] = [
            dict(s) for s in restored.operator_state
        ] or [{} for _ in range(stage.parallelism)]
        self._snapshots: list[LocalSnapshot | None] = [None] * stage.parallelism
        self.version = restored.version
        self._readers_lock = threading.Lock()
        self._published_at = self._clock()
        self.is_restored = restored.is_restored
        self._compaction = BackgroundCompaction(stage.name, self._compact)
        self._places = [self._location(i).shared for i in range(stage.parallelism)]
        """Per subtask, where its files are; for their identity only if hosts share no directory."""
        self._lock = threading.Lock()
        self._uploaded: list[tuple[StateFilesLease, Bases]] = []
        self._verified: list[set[str]] = [
            {f.name for f in ref.files} if restored.is_durable else set() for ref in self._refs
        ]
        """Per subtask, files that the last snapshot synced and read back; the executor's own."""
        self._verified_bases = [set[str]() for _ in self._refs]
        """Per subtask, the files of the newest base, synced and read back when it was written.

        Set by the thread that wrote the base. A base that another one replaces here is only read
        once more by the next snapshot.
        """
        self._live_files = self._registry.acquire(self.files(self._refs))
        self._store: StateInStore | None = None
        """Where checkpoints put the state, if the job's directory is in a store."""
        if self._refs and self._layout.state_store(stage.head.uid, 0) is not None:
            self._store = StateInStore(
                stage, self._layout, self._submitter, self._registry, self._refs
            )

    @property
    def uid(self) -> str:
        """The uid of the operator that has the keyed state."""
        return self._stage.head.uid

    @property
    def name(self) -> str:
        """The name of this operator."""
        return self._stage.head.name

    @property
    def max_parallelism(self) -> int:
        """The number of its key groups."""
        return self._stage.head.max_parallelism

    @property
    def backend_name(self) -> str | None:
        """The backend of the stage's keyed state, None if it has none."""
        return self._settings.backend if self._refs else None

    def ref(self, subtask: int) -> StateRef | None:
        """Return the state that a subtask's next micro-batch starts from."""
        return self._refs[subtask] if self._refs else None

    def operator_state(self, subtask: int) -> dict[str, bytes]:
        """Return the operator state of a subtask, by operator uid."""
        return self._operator_state[subtask]

    def wants_snapshot(self, *, at_barrier: bool) -> bool:
        """Whether the tasks of the next micro-batch must take a local snapshot."""
        if not self._refs or not self._backend.wants_snapshots:
            return False
        return at_barrier or (not self._compaction.is_running and self._has_many_deltas())

    def after(self, batch: int, acks: Sequence[Acknowledgement]) -> list[StateRef]:
        """Return the state as it will be once the micro-batch is published."""
        if not self._refs:
            return []
        pairs = zip(self._refs, acks, strict=True)
        return [self._backend.publish(ref, batch, ack.state) for ref, ack in pairs]

    def apply_published(
        self, batch: int, refs: list[StateRef], acks: Sequence[Acknowledgement]
    ) -> None:
        """Continue from a published micro-batch."""
        self._snapshots = [ack.snapshot for ack in acks]
        for mine, ack in zip(self._operator_state, acks, strict=True):
            mine.update(ack.operator_state)
        with self._readers_lock:
            self.version, self._published_at = batch, self._clock()
            self._set_refs_locked(refs)

    def published(self) -> PublishedState:
        """Return the newest state; the caller releases it."""
        with self._readers_lock:
            refs, batch, published = self._refs, self.version, self._published_at
            files = self._registry.acquire(self.files(refs))
        head, backend = self._stage.head, self._settings.backend
        parts = [
            CheckpointPart(
                subtask,
                key_group_range(head.max_parallelism, self._stage.parallelism, subtask),
                backend,
                location,
                ref,
            )
            for subtask, (location, ref) in enumerate(zip(self._places, refs, strict=False))
        ]
        return PublishedState(batch, published, parts, files)

    # -- snapshots --------------------------------------------------------------------------

    def freeze(self) -> FrozenState:
        """Return the present version as a checkpoint may store it: the synchronous phase."""
        self.apply_compacted()
        if self._checkpoints.synchronous and self._refs and not self._backend.wants_snapshots:
            self._rebase(self._compact(self._compaction_work(self._refs)))
        snapshots, self._snapshots = self._snapshots, [None] * self._stage.parallelism
        keyed = [self._backend.freeze(ref) for ref in self._refs]
        return FrozenState(
            self.version,
            keyed,
            snapshots,
            [dict(s) for s in self._operator_state],
            self._registry.acquire(self.files(keyed)),
        )

    def files(self, refs: Sequence[StateRef]) -> list[Location]:
        """Return the files that some states, one per subtask, need."""
        return [
            path
            for location, ref in zip(self._places, refs, strict=False)
            for path in self._backend.files(location, ref)
        ]

    def take_unneeded(self) -> list[list[str]]:
        """Return, per subtask, files on its host that its task has to delete."""
        return [self._registry.take_unneeded(location.shared_dir) for location in self._places]

    def make_durable(self, frozen: FrozenState) -> DurableState:
        """Upload, sync and verify a frozen state: the asynchronous phase."""
        refs = frozen.keyed
        if any(s is not None for s in frozen.snapshots):
            bases = self._compact(self._compaction_work(refs, frozen.snapshots), "upload")
            refs = [self._backend.rebase(r, b) for r, b in zip(refs, bases, strict=True)]
            # The new files have two users: this checkpoint, and the loop that continues from them.
            frozen.files.add(self.files(refs))
            for_loop = self._registry.acquire(self.files(refs))
            with self._lock:
                self._uploaded.append((for_loop, bases))
        if self._store is not None:
            return DurableState(*self._store.put(refs, frozen.version))
        return DurableState(refs, self._verify(refs))

    def _verify(self, refs: Sequence[StateRef]) -> list[int]:
        """Sync and read back the new files of a state; return how many bytes are new."""
        work = [self._verify_work(subtask, ref) for subtask, ref in enumerate(refs)]
        if sum(one.new_bytes for one in work) > _VERIFIED_BY_DRIVER:
            self._submitter.run_per_subtask(self._stage.id, "verify", state_jobs.verify, work)
        else:
            with ThreadPoolExecutor(_VERIFIED_AT_ONCE) as pool:
                list(pool.map(state_jobs.verify, work, repeat(0)))
        before, self._verified = self._verified, [{f.name for f in ref.files} for ref in refs]
        return [
            sum(f.size for f in ref.files if f.name not in known) + len(ref.inline or b"")
            for ref, known in zip(refs, before, strict=True)
        ]

    def _verify_work(self, subtask: int, ref: StateRef) -> VerifyWork:
        before, location = self._verified[subtask], self._location(subtask).shared
        known = frozenset(before | self._verified_bases[subtask])
        for file in ref.files:
            if file.name in known:
                check_exists(location, file)
        if ref.files and not before:
            # Its first files: tasks have created their directory, and may have created those above.
            for directory in list(location.shared_dir.parents)[:_DIRECTORIES_ABOVE]:
                sync_directory(directory)
        return VerifyWork(self._settings.backend, location, ref, known)

    def export(self, frozen: FrozenState, target: Location) -> list[SavepointFile]:
        """Write a frozen state into a savepoint."""
        if not frozen.keyed:
            return []
        head = self._stage.head
        now = int(self._clock() * 1000)
        if isinstance(target, Path):
            # Tasks would create it, too, but without syncing the directories above it.
            make_directory(target)
        operator = SavedOperator(head.uid, self.key_type, head.max_parallelism)
        backend = self._settings.backend
        work = [
            ExportWork(backend, self._location(i), ref, operator, target, i, self._name(i), now)
            for i, ref in enumerate(frozen.keyed)
        ]
        parts = self._run_on_hosts("export", state_jobs.export, work)
        files = finalize_files(target, (file for part in parts for file in part))
        if isinstance(target, Path):
            verify_files(target, files)  # those in a store were read back by the tasks
        reach(CrashPoint.SAVEPOINT_WRITTEN)
        return files

    # -- compaction -------------------------------------------------------------------------

    def start_compaction(self) -> None:
        """Compact deltas into new bases, in the background, if there are many."""
        if self._compaction.is_running or not self._has_many_deltas():
            return
        if self._backend.wants_snapshots and not any(self._snapshots):
            return
        work = self._compaction_work(self._refs, self._snapshots)
        self._compaction.start(work, self._registry.acquire(self.files(self._refs)))

    def apply_compacted(self) -> None:
        """Switch to new bases, between micro-batches: no task is reading the old files."""
        with self._lock:
            finished, self._uploaded = self._uploaded, []
        if (compacted := self._compaction.take()) is not None:
            finished.append(compacted)
        for lease, bases in finished:
            self._rebase(bases)
            lease.release()

    def close(self) -> None:
        """Wait for a running compaction."""
        self._compaction.close()

    def _compact(self, work: list[CompactionWork], purpose: str = "compact") -> Bases:
        """Let tasks write new bases, which they sync and read back."""
        made = self._run_on_hosts(purpose, state_jobs.compact, work)
        for subtask, (one, compacted) in enumerate(zip(work, made, strict=True)):
            if compacted.ref is not None:
                old = {file.name for file in one.ref.files}
                self._verified_bases[subtask] = {f.name for f in compacted.ref.files} - old
            if compacted.damage:
                logger.warning(
                    "Stage %r wrote new state files again, because they were damaged: %s",
                    self._stage.name,
                    compacted.damage,
                )
        return [compacted.ref for compacted in made]

    def _run_on_hosts(
        self, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        return run_on_hosts(self._submitter, self._stage, self._layout, purpose, function, work)

    def _rebase(self, bases: Bases) -> None:
        refs = list(self._refs)
        for subtask, base in enumerate(bases):
            if base is not None:
                refs[subtask] = self._backend.rebase(refs[subtask], base)
        self._set_refs(refs)

    def _set_refs(self, refs: list[StateRef]) -> None:
        with self._readers_lock:
            self._set_refs_locked(refs)

    def _set_refs_locked(self, refs: list[StateRef]) -> None:
        self._refs = refs
        if refs:
            self._live_files.replace(self.files(refs))

    def _has_many_deltas(self) -> bool:
        after = self._settings.compact_after_deltas
        return any(is_worth_compacting(ref, after) for ref in self._refs)

    def _compaction_work(
        self, refs: Sequence[StateRef], snapshots: Sequence[LocalSnapshot | None] = ()
    ) -> list[CompactionWork]:
        taken = list(snapshots) or [None] * len(refs)
        return [
            CompactionWork(
                self._settings.backend,
                self._checkpoints.incremental,
                self._location(i),
                as_of(ref, taken[i]),
                self._name(i),
                taken[i],
            )
            for i, ref in enumerate(refs)
        ]

    def _location(self, subtask: int) -> UnresolvedStateLocation:
        return self._layout.place(self._stage.head.uid, subtask)

    def _name(self, subtask: int) -> StagedName:
        return StagedName(self._layout.attempt, self.version, 0, subtask, 0)
