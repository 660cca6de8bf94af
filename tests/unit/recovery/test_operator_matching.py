"""Which operator takes over which state, for programs that changed since."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.checkpoint.storage.metadata import (
    CheckpointMetadata,
    CommittableState,
    OperatorSnapshot,
    SinkState,
    SourceState,
)
from penstock.common import Types
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.errors import NonRestoredStateError, RestoreMismatchError
from penstock.graph.plan import Plan
from penstock.recovery.operator_matching import match_operators
from penstock.state.backends.refs import StateRef
from tests.unit.support import environment, plan_of

STATE = [StateRef(version=3), StateRef(version=3)]


def plan(parallelism: int = 2, max_parallelism: int | None = None, key: Any = None) -> Plan:
    """Numbers, counted by key, thrown away; uids: numbers, count, sink."""
    env = environment(parallelism)
    numbers = env.from_collection([1, 2, 3], Types.LONG()).uid("numbers")
    keyed = numbers.key_by(lambda n: n, key or Types.LONG())
    counted = keyed.reduce(lambda a, b: a + b).uid("count")
    if max_parallelism is not None:
        counted.set_max_parallelism(max_parallelism)
    counted.sink_to(DiscardingSink()).uid("sink")
    return plan_of(env)


def snapshot(*operators: OperatorSnapshot) -> CheckpointMetadata:
    return CheckpointMetadata(
        "count", "count", "a1", 7, "checkpoint", 1.0, 2.0, "0", list(operators)
    )


def operator(uid: str, **more: Any) -> OperatorSnapshot:
    given = {"parallelism": 2, "max_parallelism": 128, "version": 3, **more}
    return OperatorSnapshot(uid, uid, "any", **given)


def keyed(uid: str = "count", **more: Any) -> OperatorSnapshot:
    return operator(uid, **{"keyed": STATE, "key_type": "LONG", "backend": "hashmap", **more})


def fit(metadata: CheckpointMetadata, plan: Plan, *, drop: bool = False) -> Plan:
    return match_operators(plan, metadata, "/chk-7", allow_non_restored=drop)


def max_parallelism_of(plan: Plan, uid: str) -> set[int]:
    """Of an operator and of the channels into it."""
    (stage,) = (s for s in plan.stages if any(n.uid == uid for n in s.nodes))
    (node,) = (n for n in stage.nodes if n.uid == uid)
    return {node.max_parallelism, *(c.max_parallelism for c in stage.inputs)}


def test_operators_are_found_by_uid_whatever_their_order() -> None:
    source = operator("numbers", source=SourceState({"0": 5}, False))
    program = plan()
    fitted = fit(snapshot(keyed(), source), program)
    uids = [[n.uid for n in s.nodes] for s in program.stages]
    assert [[n.uid for n in s.nodes] for s in fitted.stages] == uids


def test_the_number_of_key_groups_is_that_of_the_snapshot() -> None:
    assert max_parallelism_of(plan(), "count") == {128}
    fitted = fit(snapshot(keyed(max_parallelism=32)), plan())
    assert max_parallelism_of(fitted, "count") == {32}


def test_state_without_an_operator_is_refused_by_name_or_dropped_on_request() -> None:
    gone = snapshot(keyed("gone"), operator("other", operator_state=[b"x"]), keyed())
    with pytest.raises(NonRestoredStateError) as refused:
        fit(gone, plan())
    assert refused.value.operators == ("'gone' (uid gone)", "'other' (uid other)")
    fit(gone, plan(), drop=True)


@pytest.mark.parametrize(
    "state",
    [
        {"source": SourceState({"0": 5}, False)},
        {"sink": SinkState([CommittableState(7, b"file")], [])},
        {"sink": SinkState([], [b"open file"])},
        {"operator_state": [b"list"]},
        {"keyed": STATE},
    ],
)
def test_anything_that_would_be_lost_counts_as_state(state: dict[str, Any]) -> None:
    with pytest.raises(NonRestoredStateError):
        fit(snapshot(operator("gone", **state)), plan())


def test_an_operator_that_kept_nothing_may_go() -> None:
    fit(snapshot(operator("gone"), operator("sink 2", sink=SinkState([], []))), plan())


def test_a_new_operator_begins_with_nothing() -> None:
    fit(snapshot(), plan())


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (keyed("numbers"), {}, "it has keyed state there, and no key here"),
        (keyed(), {"key": Types.STRING()}, "its keys were LONG and are STRING now"),
        (keyed(), {"max_parallelism": 64}, "it had max parallelism 128, and 64 is set now"),
        (
            keyed(max_parallelism=2),
            {"parallelism": 3},
            "its parallelism 3 is above the 2 key groups it has",
        ),
        (operator("count", source=SourceState({}, False)), {}, "it is a source there"),
        (
            operator("count", sink=SinkState([CommittableState(7, b"file")], [])),
            {},
            "it is a sink there and has output to commit",
        ),
    ],
)
def test_an_operator_whose_state_does_not_fit_is_refused_with_the_reason(
    old: OperatorSnapshot, new: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RestoreMismatchError, match=reason):
        fit(snapshot(old), plan(**new))


def test_a_max_parallelism_that_is_set_to_what_it_was_fits() -> None:
    fit(snapshot(keyed(max_parallelism=64)), plan(max_parallelism=64))
