"""The actions that the checkpoint coordinator's state machine returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.checkpoint.coordinator.failure_manager import CheckpointFailureReason
from penstock.checkpoint.coordinator.pending_checkpoint import FrozenSnapshot, PendingCheckpoint
from penstock.checkpoint.coordinator.request_decider import CheckpointRequest
from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.checkpoint.storage.metadata import CommittableState, OperatorSnapshot
from penstock.crash_points import CrashPoint
from penstock.errors import CheckpointFailedError


class Action(Struct, frozen=True):
    """Something that the coordinator has to do."""


class TriggerCheckpoint(Action, frozen=True):
    """Reserve an id for a checkpoint that is due, and start it."""

    request: CheckpointRequest


class WriteMetadata(Action, frozen=True):
    """Write the metadata of a checkpoint that all stages have acknowledged."""

    pending: PendingCheckpoint
    operators: list[OperatorSnapshot]


class CompleteCheckpoint(Action, frozen=True):
    """Append the completion to the journal, then do everything that depends on it."""

    pending: PendingCheckpoint
    operators: list[OperatorSnapshot]
    completed: CompletedCheckpoint
    subsumed: Sequence[Action]
    """What becomes of the older checkpoints that are still pending."""
    committables: Mapping[str, Sequence[CommittableState]] | None
    """What sinks commit; None for a savepoint, which commits nothing."""


class AbortCheckpoint(Action, frozen=True):
    """Remove what was written for a checkpoint, and report its failure."""

    pending: PendingCheckpoint
    reason: CheckpointFailureReason
    message: str


class DiscardSnapshot(Action, frozen=True):
    """Release a snapshot that no checkpoint takes; `is_late` if its checkpoint is over."""

    frozen: FrozenSnapshot
    is_late: bool


class Answer(Action, frozen=True):
    """Answer the client that made a request, if one did."""

    request: str
    result: CompletedCheckpoint | CheckpointFailedError


class EndJob(Action, frozen=True):
    """End the job: its last checkpoint is committed, or it takes none."""

    last: CompletedCheckpoint | None


class FailJob(Action, frozen=True):
    """End the attempt because of an error."""

    error: BaseException


class ReachCrashPoint(Action, frozen=True):
    """Give tests a place to kill the process."""

    point: CrashPoint


class WakeLoops(Action, frozen=True):
    """Let the region loops look at the view again."""
