"""Checkpoints that are not complete yet: acknowledgements and pending committables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.checkpoint.barriers.alignment import BarrierHandling
from penstock.checkpoint.coordinator.request_decider import CheckpointRequest
from penstock.checkpoint.event_log import CheckpointEventLog
from penstock.checkpoint.shared_state_registry import StateFilesLease
from penstock.checkpoint.storage.metadata import CommittableState, OperatorSnapshot
from penstock.ids import CheckpointId, StageId


@dataclass(frozen=True, slots=True)
class StageSnapshot:
    """What a stage acknowledges: the durable state of its operators."""

    operators: list[OperatorSnapshot]
    files: StateFilesLease
    """Keeps the state files; belongs to the coordinator from the acknowledgement on."""


AddCommittables = Callable[[str, list[CommittableState]], None]
"""Receives what a sink has pre-committed, by its uid, even if the checkpoint fails later."""


@dataclass(frozen=True, slots=True)
class FrozenSnapshot:
    """What a stage submits at a barrier: frozen, not yet durable."""

    stage: StageId
    checkpoint: CheckpointId
    files: StateFilesLease
    """Keeps the state files that the snapshot refers to; the coordinator's from here on."""
    run_async_phase: Callable[[AddCommittables], StageSnapshot]
    """Makes the snapshot durable; called once, by the stage's checkpoint executor, in the order
    of barriers. The result holds no committables: they are pending as soon as they are prepared.
    """


@dataclass(slots=True)
class PendingCheckpoint:
    """One checkpoint from its trigger until it is complete or aborted."""

    id: CheckpointId
    request: CheckpointRequest
    triggered: float
    """The time of day."""
    started: float
    """The same moment, and `expires`, by the clock of the coordinator."""
    expires: float
    event_log: CheckpointEventLog
    not_acknowledged: set[StageId]
    barrier_handling: BarrierHandling = BarrierHandling.ALIGNED
    acknowledged: dict[StageId, StageSnapshot] = field(default_factory=dict)
    barrier_passed: set[StageId] = field(default_factory=set)

    @property
    def is_savepoint(self) -> bool:
        """Whether it is written in the canonical format, for the user."""
        return self.request.path is not None

    @property
    def flush(self) -> bool:
        """Whether sinks must leave no unfinished output: this job may not continue from here."""
        return self.is_savepoint or self.ends_the_job

    @property
    def ends_the_job(self) -> bool:
        """Whether the job is over once the checkpoint is complete and committed."""
        return self.request.kind.ends_the_job

    @property
    def is_complete(self) -> bool:
        """Whether all stages have acknowledged."""
        return not self.not_acknowledged

    def acknowledge(self, stage: StageId, snapshot: StageSnapshot) -> bool:
        """Add the acknowledgement of a stage; False if it has acknowledged before."""
        if stage in self.acknowledged:
            return False
        self.not_acknowledged.discard(stage)
        self.acknowledged[stage] = snapshot
        return True

    def operators(self) -> list[OperatorSnapshot]:
        """Return the state of all operators that have acknowledged, by stage."""
        return [
            o for stage in sorted(self.acknowledged) for o in self.acknowledged[stage].operators
        ]


class PendingCommittables:
    """What sinks have pre-committed and is not known to be committed, by operator uid.

    A checkpoint holds all of it up to its own id, also that of aborted checkpoints: its records
    are before the barrier.
    """

    def __init__(self) -> None:
        self._by_uid: dict[str, list[CommittableState]] = {}

    def add(self, uid: str, committables: Iterable[CommittableState]) -> None:
        """Add what a sink pre-committed at a barrier."""
        self._by_uid.setdefault(uid, []).extend(committables)

    def of(self, uid: str, checkpoint: CheckpointId) -> list[CommittableState]:
        """Return what one sink has to commit with a checkpoint."""
        return [c for c in self._by_uid.get(uid, ()) if c.checkpoint <= checkpoint]

    def upto(self, checkpoint: CheckpointId) -> dict[str, list[CommittableState]]:
        """Return what all sinks have to commit with a checkpoint."""
        pending = {uid: self.of(uid, checkpoint) for uid in self._by_uid}
        return {uid: committables for uid, committables in pending.items() if committables}

    def all(self) -> dict[str, list[CommittableState]]:
        """Return everything that is pending."""
        return {uid: list(committables) for uid, committables in self._by_uid.items()}

    def committed(self, checkpoint: CheckpointId) -> None:
        """Forget what was committed with a checkpoint."""
        for uid, committables in self._by_uid.items():
            self._by_uid[uid] = [c for c in committables if c.checkpoint > checkpoint]
