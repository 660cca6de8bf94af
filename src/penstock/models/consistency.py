"""P(exactly once) = P(checkpoint) * P(source) * P(sink), from counted events.

Each factor is the share of events that needed no help from outside. An event that did is no lost or
repeated record: the job falls back to an older checkpoint, tries again, or fails with an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock import errors
from penstock.checkpoint.coordinator.failure_manager import CheckpointFailureReason
from penstock.checkpoint.history import (
    CheckpointStats,
    CheckpointStatus,
    ExceptionRecord,
    Recovery,
)
from penstock.models.fitting.proportion import Proportion, product, proportion

_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+Error)\b", re.MULTILINE)

CHECKPOINT_ERRORS = frozenset(
    {
        errors.BadCheckpointError.__name__,
        errors.CorruptMetadataError.__name__,
        errors.CorruptStateError.__name__,
    }
)
"""A completed checkpoint could not be restored."""
SOURCE_ERRORS = frozenset(
    {
        errors.AcknowledgedRecordsError.__name__,
        errors.ChangedFileError.__name__,
        errors.CorruptIngestionLogError.__name__,
        errors.DifferentStreamError.__name__,
        errors.LostReceivedRecordsError.__name__,
        errors.LostRecordsError.__name__,
        errors.MissingIngestionDirectoryError.__name__,
        errors.MissingOffsetsError.__name__,
        errors.MissingStreamError.__name__,
    }
)
"""A source could not continue at its position in the checkpoint."""
SINK_ERRORS = frozenset(
    {
        errors.AbortedTransactionError.__name__,
        errors.CommitFailedError.__name__,
        errors.CorruptStagedRecordsError.__name__,
        errors.IncompleteKafkaCheckpointError.__name__,
        errors.LostKafkaMarkerError.__name__,
        errors.LostPendingFileError.__name__,
        errors.LostPreparedRowsError.__name__,
        errors.LostStagedFileError.__name__,
        errors.UncommittedOutputError.__name__,
    }
)
"""A sink could not commit what it had pre-committed."""


@dataclass(frozen=True, slots=True)
class Consistency:
    """The three factors and their product, each with an exact interval of 95 % confidence."""

    checkpoint: Proportion
    """Of the checkpoints: how many completed and, where tried, could be restored."""
    source: Proportion
    """Of the restores of a checkpoint: how many found the sources' positions."""
    sink: Proportion
    """Of the completed checkpoints: how many were committed without an error."""
    exactly_once: Proportion
    """The product; its interval is that of three intervals that hold together."""


def measure_consistency(
    checkpoints: Sequence[CheckpointStats],
    recoveries: Sequence[Recovery],
    exceptions: Sequence[ExceptionRecord],
) -> Consistency:
    """Count the events in the history of a job."""
    completed = sum(c.status is CheckpointStatus.COMPLETED for c in checkpoints)
    failed = sum(_counts_as_failure(c) for c in checkpoints)
    restored = sum(r.checkpoint is not None for r in recoveries)
    damaged = _raised(exceptions, CHECKPOINT_ERRORS)
    lost_input = _raised(exceptions, SOURCE_ERRORS)
    uncommitted = _raised(exceptions, SINK_ERRORS)
    parts = [
        (completed, completed + failed + damaged),
        (restored, restored + lost_input),
        (completed, completed + uncommitted),
    ]
    each = [proportion(*part) for part in parts]
    return Consistency(each[0], each[1], each[2], product(parts))


def _counts_as_failure(record: CheckpointStats) -> bool:
    """Whether a checkpoint failed by itself; one that the end of its attempt aborts did not."""
    if record.status is not CheckpointStatus.FAILED:
        return False
    reason = (record.failure or "").partition(":")[0]
    return any(reason == r.value and r.counts for r in CheckpointFailureReason)


def _raised(exceptions: Sequence[ExceptionRecord], names: Collection[str]) -> int:
    """Return how many failures were, or were caused by, one of some errors."""
    return sum(any(n in names for n in _RAISED.findall(e.traceback)) for e in exceptions)
