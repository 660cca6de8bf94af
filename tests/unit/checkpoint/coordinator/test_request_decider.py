"""When a checkpoint is triggered; most claims are those of Flink's request decider."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.coordinator.request_decider import (
    CheckpointRequest,
    RequestKind,
    Trigger,
    TriggerFacts,
    Wait,
    decide,
)

STOP, SAVEPOINT, FINAL, MANUAL, PERIODIC = RequestKind
QUIET = TriggerFacts(
    interval_s=10.0,
    records=None,
    min_pause_s=0.0,
    max_concurrent=1,
    queued=(),
    pending=(),
    last_trigger=100.0,
    last_end=101.0,
    records_since_trigger=0,
)


def asked(*kinds: RequestKind) -> tuple[CheckpointRequest, ...]:
    return tuple(CheckpointRequest(kind, f"r{n}") for n, kind in enumerate(kinds))


def chosen(facts: TriggerFacts, now: float) -> RequestKind | None:
    decision = decide(facts, now)
    return decision.request.kind if isinstance(decision, Trigger) else None


def test_the_interval_is_counted_from_the_last_trigger() -> None:
    assert decide(QUIET, 104.0) == Wait(6.0)
    assert chosen(QUIET, 110.0) is PERIODIC
    assert chosen(QUIET, 500.0) is PERIODIC


def test_nothing_is_periodic_without_interval_and_records() -> None:
    assert decide(replace(QUIET, interval_s=None), 1e9) == Wait(None)


def test_enough_records_are_as_good_as_enough_time() -> None:
    facts = replace(QUIET, records=500)
    assert decide(replace(facts, records_since_trigger=499), 104.0) == Wait(6.0)
    assert chosen(replace(facts, records_since_trigger=500), 104.0) is PERIODIC
    assert chosen(replace(facts, records_since_trigger=0), 110.0) is PERIODIC


def test_records_alone_wait_for_records() -> None:
    facts = replace(QUIET, interval_s=None, records=500, records_since_trigger=499)
    assert decide(facts, 1e9) == Wait(None)
    assert chosen(replace(facts, records_since_trigger=501), 104.0) is PERIODIC


@pytest.mark.parametrize("records", [None, 1])
def test_the_minimum_pause_delays_a_periodic_checkpoint(records: int | None) -> None:
    facts = replace(QUIET, min_pause_s=5.0, last_end=109.0, records=records)
    facts = replace(facts, records_since_trigger=1)
    assert decide(facts, 110.0) == Wait(4.0)
    assert chosen(facts, 114.0) is PERIODIC


def test_an_interval_below_the_minimum_pause_is_stretched_to_it() -> None:
    facts = replace(QUIET, interval_s=1.0, min_pause_s=30.0, last_end=50.0, max_concurrent=2)
    assert decide(facts, 110.0) == Wait(20.0)


@pytest.mark.parametrize("kind", [STOP, SAVEPOINT, FINAL, MANUAL])
def test_requested_checkpoints_do_not_keep_the_minimum_pause(kind: RequestKind) -> None:
    facts = replace(QUIET, min_pause_s=1000.0, queued=asked(kind))
    assert chosen(facts, 101.0) is kind


@pytest.mark.parametrize("kind", [FINAL, MANUAL, PERIODIC])
def test_a_checkpoint_waits_while_too_many_are_in_flight(kind: RequestKind) -> None:
    facts = replace(QUIET, queued=asked(kind) if kind is not PERIODIC else ())
    busy = replace(facts, pending=(PERIODIC,))
    assert decide(busy, 200.0) == Wait(None)
    assert chosen(replace(busy, max_concurrent=2), 200.0) is kind
    assert chosen(facts, 200.0) is kind


@pytest.mark.parametrize("kind", [STOP, SAVEPOINT])
def test_a_savepoint_does_not_wait_for_checkpoints(kind: RequestKind) -> None:
    assert chosen(replace(QUIET, pending=(PERIODIC,), queued=asked(kind)), 101.0) is kind


@pytest.mark.parametrize("kind", [STOP, SAVEPOINT])
def test_there_is_one_savepoint_at_a_time(kind: RequestKind) -> None:
    facts = replace(QUIET, pending=(SAVEPOINT,), queued=asked(kind))
    assert chosen(facts, 101.0) is None


def test_a_savepoint_in_flight_takes_no_room_from_checkpoints() -> None:
    assert chosen(replace(QUIET, pending=(SAVEPOINT,)), 110.0) is PERIODIC
    behind = replace(QUIET, pending=(SAVEPOINT,), queued=asked(SAVEPOINT, MANUAL))
    assert chosen(behind, 101.0) is MANUAL


def test_requests_go_by_kind_and_then_in_the_order_they_came() -> None:
    queued = asked(MANUAL, FINAL, SAVEPOINT, MANUAL, STOP)
    order = []
    while queued:
        decision = decide(replace(QUIET, queued=queued), 500.0)
        assert isinstance(decision, Trigger)
        order.append(decision.request.id)
        queued = tuple(request for request in queued if request != decision.request)
    assert order == ["r2", "r4", "r1", "r0", "r3"]


@pytest.mark.parametrize("kind", [STOP, FINAL])
def test_nothing_is_triggered_after_the_checkpoint_that_ends_the_job(kind: RequestKind) -> None:
    facts = replace(QUIET, pending=(kind,), max_concurrent=9, queued=asked(SAVEPOINT, MANUAL))
    assert decide(facts, 1e9) == Wait(None)


@pytest.mark.parametrize(("kind", "pending"), [(STOP, SAVEPOINT), (FINAL, PERIODIC)])
def test_nothing_periodic_goes_before_a_waiting_end(
    kind: RequestKind, pending: RequestKind
) -> None:
    facts = replace(QUIET, pending=(pending,), queued=asked(kind))
    assert decide(facts, 1e9) == Wait(None)


def test_a_clock_that_was_set_back_delays_nothing() -> None:
    assert chosen(replace(QUIET, min_pause_s=5.0), 50.0) is PERIODIC


KINDS = st.lists(st.sampled_from(list(RequestKind)), max_size=4).map(tuple)
FACTS = st.builds(
    TriggerFacts,
    interval_s=st.none() | st.floats(0.01, 100),
    records=st.none() | st.integers(1, 100),
    min_pause_s=st.floats(0, 100),
    max_concurrent=st.integers(1, 3),
    queued=KINDS.map(lambda kinds: asked(*(k for k in kinds if k is not PERIODIC))),
    pending=KINDS,
    last_trigger=st.floats(0, 100),
    last_end=st.floats(0, 100),
    records_since_trigger=st.integers(0, 200),
)


@given(FACTS, st.floats(0, 200))
def test_after_the_returned_wait_a_checkpoint_is_triggered(
    facts: TriggerFacts, later: float
) -> None:
    now = max(facts.last_trigger, facts.last_end) + later
    decision = decide(facts, now)
    if isinstance(decision, Wait) and decision.seconds is not None:
        assert decision.seconds > 0
        assert chosen(facts, now + decision.seconds + 1e-6) is PERIODIC


@given(FACTS, st.floats(0, 300))
def test_limits_hold_for_all_requests(facts: TriggerFacts, now: float) -> None:
    kind = chosen(facts, now)
    if kind is None:
        return
    after = [*facts.pending, kind]
    same = [k for k in after if k.is_savepoint == kind.is_savepoint]
    assert len(same) <= (1 if kind.is_savepoint else facts.max_concurrent)
    assert not any(k.ends_the_job for k in facts.pending)
