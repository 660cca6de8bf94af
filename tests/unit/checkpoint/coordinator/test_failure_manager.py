from __future__ import annotations

import pytest

from penstock.checkpoint.coordinator.failure_manager import (
    CheckpointFailureManager,
    CheckpointFailureReason,
)

COUNTED = ["EXPIRED", "ASYNC_FAILED", "FINALIZE_FAILED"]


@pytest.mark.parametrize("reason", CheckpointFailureReason)
def test_only_what_went_wrong_counts(reason: CheckpointFailureReason) -> None:
    failures = CheckpointFailureManager()
    failures.failed(reason)
    assert failures.consecutive == (reason.name in COUNTED)
    assert failures.exceeds(0) is (reason.name in COUNTED)


def test_as_many_as_are_tolerable_are_tolerated() -> None:
    failures = CheckpointFailureManager()
    for reason in (
        CheckpointFailureReason.EXPIRED,
        CheckpointFailureReason.SUBSUMED,
        CheckpointFailureReason.ASYNC_FAILED,
    ):
        failures.failed(reason)
    assert not failures.exceeds(2)
    failures.failed(CheckpointFailureReason.FINALIZE_FAILED)
    assert failures.exceeds(2)


def test_a_completed_checkpoint_resets_the_count() -> None:
    failures = CheckpointFailureManager()
    failures.failed(CheckpointFailureReason.EXPIRED)
    failures.completed()
    assert failures.consecutive == 0
    failures.failed(CheckpointFailureReason.EXPIRED)
    assert not failures.exceeds(1)
