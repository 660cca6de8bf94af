"""The events that the checkpoint coordinator reacts to."""

from __future__ import annotations

from concurrent.futures import Future

from msgspec import Struct, field

from penstock.checkpoint.coordinator.pending_checkpoint import FrozenSnapshot, StageSnapshot
from penstock.checkpoint.coordinator.request_decider import CheckpointRequest
from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.checkpoint.storage.metadata import CommittableState
from penstock.ids import CheckpointId, StageId


class Event(Struct, frozen=True):
    """Something that happened outside of the coordinator."""


class RecordsRead(Event, frozen=True):
    """A source has read this many more records."""

    records: int


class BarrierPassed(Event, frozen=True):
    """A stage has frozen its snapshot and forwarded the barrier."""

    stage: StageId
    checkpoint: CheckpointId


class CommittablesPrepared(Event, frozen=True):
    """A sink has pre-committed output."""

    uid: str
    committables: list[CommittableState]


class SnapshotAcknowledged(Event, frozen=True):
    """The snapshot of a stage is durable."""

    frozen: FrozenSnapshot
    snapshot: StageSnapshot


class SnapshotDeclined(Event, frozen=True):
    """The snapshot of a stage could not be made durable."""

    frozen: FrozenSnapshot
    error: BaseException


class StageEnded(Event, frozen=True):
    """A stage has published the last of its input."""

    stage: StageId


class CommitsCompleted(Event, frozen=True):
    """Sinks have committed everything up to a checkpoint."""

    completed: CompletedCheckpoint
    ends_the_job: bool


class CommitsFailed(Event, frozen=True):
    """A sink could not commit."""

    completed: CompletedCheckpoint
    error: BaseException


class CheckpointRequested(Event, frozen=True):
    """A client wants a checkpoint or savepoint; with `drain`, sources have to end first."""

    request: CheckpointRequest
    drain: bool = False
    answer: Future[CompletedCheckpoint] = field(default_factory=Future)


class ClockMoved(Event, frozen=True):
    """Time may have passed."""
