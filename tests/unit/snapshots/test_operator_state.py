"""Operator state, positions and committables are read as the programs have left them."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.errors import UnknownStateError
from penstock.snapshots.operator_state import (
    OperatorState,
    operator_state,
    operator_states,
    pending_committables,
    source_positions,
)
from penstock.snapshots.stored_snapshot import StoredSnapshot
from penstock.state.operator.states import RedistributionMode
from tests.golden.programs import states
from tests.unit.snapshots.test_reading import snapshot


@pytest.fixture(params=["hashmap", "rocksdb", "memory", "savepoint"])
def stored(request: pytest.FixtureRequest) -> StoredSnapshot:
    return snapshot(request.param)


def rules_of(stored: StoredSnapshot) -> OperatorState:
    return operator_state(stored.operator("Keyed-Co-Process-Broadcast"), "rates")


def stamps_of(stored: StoredSnapshot) -> list[OperatorState]:
    for operator in stored.metadata.operators:
        found = operator_states(operator)
        if found and not found[0].is_broadcast:
            return found
    raise AssertionError


def test_a_broadcast_map_has_each_entry_once(stored: StoredSnapshot) -> None:
    rates = rules_of(stored)
    assert rates.is_broadcast
    rows = rates.table().to_pylist()
    assert {row["map_key"]: row["value"] for row in rows} == {
        rule: rule + 1 for rule in range(states.FIRST_RULES)
    }
    assert len(rows) == states.FIRST_RULES


def test_lists_have_what_every_subtask_has_put_there(stored: StoredSnapshot) -> None:
    counts, stamps = stamps_of(stored)
    assert counts.distribution is RedistributionMode.UNION
    assert stamps.distribution is RedistributionMode.SPLIT
    # Each subtask counts the lines that pass it, in both states.
    by_stamp = {row["value"]["f0"]: row["value"]["f1"] for row in stamps.table().to_pylist()}
    assert all(name == f"s{row['subtask']}" for row in stamps.table().to_pylist()
               for name in [row["value"]["f0"]])  # fmt: skip
    by_count: Counter[int] = Counter()
    for row in counts.table().to_pylist():
        by_count[row["value"]["f0"]] = max(by_count[row["value"]["f0"]], row["value"]["f1"])
    assert {f"s{subtask}": count for subtask, count in by_count.items()} == by_stamp


def test_an_unknown_state_is_an_error_that_lists_the_known_ones(stored: StoredSnapshot) -> None:
    with pytest.raises(UnknownStateError, match="rates"):
        operator_state(stored.operator("Keyed-Co-Process-Broadcast"), "prices")


def test_positions_are_those_of_all_sources(stored: StoredSnapshot) -> None:
    rows = source_positions(stored.metadata).to_pylist()
    assert {(row["split"], row["position"]) for row in rows} == {
        ("numbers", states.CUT),
        ("rules", states.FIRST_RULES),
    }
    numbers = stored.operator("Source: numbers")
    (row,) = source_positions(stored.metadata, [numbers]).to_pylist()
    assert (row["operator_uid"], row["split"]) == (numbers.uid, "numbers")


def test_committables_are_those_of_all_sinks(stored: StoredSnapshot) -> None:
    table = pending_committables(stored.metadata)
    sinks = [o for o in stored.metadata.operators if o.sink is not None]
    assert table.num_rows == sum(len(o.sink.committables) for o in sinks if o.sink is not None) > 0
    (two_phase,) = [o for o in sinks if "TwoPhase" in o.name]
    assert pending_committables(stored.metadata, [two_phase]).num_rows < table.num_rows
