from __future__ import annotations

import pytest

from penstock.checkpoint.failures import AbortReason, FailureCount

COUNTED = ["EXPIRED", "ASYNC_FAILED", "FINALIZE_FAILED"]


@pytest.mark.parametrize("reason", AbortReason)
def test_only_what_went_wrong_counts(reason: AbortReason) -> None:
    failures = FailureCount()
    failures.failed(reason)
    assert failures.consecutive == (reason.name in COUNTED)
    assert failures.exceeds(0) is (reason.name in COUNTED)


def test_as_many_as_are_tolerable_are_tolerated() -> None:
    failures = FailureCount()
    for reason in (AbortReason.EXPIRED, AbortReason.SUBSUMED, AbortReason.ASYNC_FAILED):
        failures.failed(reason)
    assert not failures.exceeds(2)
    failures.failed(AbortReason.FINALIZE_FAILED)
    assert failures.exceeds(2)


def test_a_completed_checkpoint_begins_the_count_anew() -> None:
    failures = FailureCount()
    failures.failed(AbortReason.EXPIRED)
    failures.completed()
    assert failures.consecutive == 0
    failures.failed(AbortReason.EXPIRED)
    assert not failures.exceeds(1)
