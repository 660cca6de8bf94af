"""Sizes are those of the entries that were written, by state and key group, in every format."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from penstock.client.snapshot_facts import inspect
from penstock.client.state_sizes import sizes_of, skew_of
from penstock.common import Types
from penstock.snapshots.sizes import measure
from penstock.snapshots.stored_snapshot import opened_part
from tests.unit.snapshots.made_snapshots import FORMATS, entries_of, snapshot_of
from tests.unit.snapshots.test_differences import some_states
from tests.unit.snapshots.test_reading import snapshot


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_measured_are_all_entries_and_bytes_by_key_group(
    tmp_path: Path, kind: str, parallelism: int
) -> None:
    states = some_states(random.Random(parallelism))
    entries = entries_of(states, Types.LONG())
    stored = snapshot_of(entries, tmp_path / "job" / "chk-1", kind, Types.LONG(), parallelism)
    expected: dict[str, Counter[int]] = {name: Counter() for name in states}
    counts: dict[str, Counter[int]] = {name: Counter() for name in states}
    for key, value in entries:
        if table := int.from_bytes(key[:2], "big"):
            name = list(states)[table - 1]
            group = int.from_bytes(key[2:4], "big")
            expected[name][group] += len(key) + len(value)
            counts[name][group] += 1
    found: dict[str, Counter[int]] = {name: Counter() for name in states}
    found_counts: dict[str, Counter[int]] = {name: Counter() for name in states}
    (operator,) = stored.metadata.operators
    for part in stored.parts(operator):
        with opened_part(part) as opened:
            for size in measure(opened, stored.keyed_states(operator, [opened])):
                groups = size.key_groups.items()
                found[size.state.name].update({g: s.bytes for g, s in groups})
                found_counts[size.state.name].update({g: s.entries for g, s in groups})
                assert all(group in part.key_groups for group in size.key_groups)
    assert found == expected
    assert found_counts == counts


@pytest.mark.parametrize("name", ["rocksdb", "memory", "savepoint"])
def test_snapshots_of_one_program_have_the_same_sizes_whatever_wrote_them(name: str) -> None:
    def sizes(name: str) -> dict[str, object]:
        found = sizes_of(inspect(snapshot(name).directory, by_key_group=True))
        return {
            operator.uid: ([(s.name, s.entries, s.key_groups) for s in operator.states])
            for operator in found.operators
        }

    assert sizes(name) == sizes("hashmap")
    assert sum(map(len, sizes(name).values())) > 10  # type: ignore[arg-type]


def test_the_key_groups_of_an_operator_are_those_of_its_states() -> None:
    found = sizes_of(inspect(snapshot("rocksdb").directory, by_key_group=True))
    keyed = [operator for operator in found.operators if operator.states]
    assert keyed
    for operator in keyed:
        assert len(operator.key_groups) == operator.max_parallelism
        for state in operator.states:
            assert sum(state.key_groups) == state.bytes
            assert sum(state.entries_by_key_group) == state.entries
        assert sum(operator.key_groups) == sum(state.bytes for state in operator.states)


def test_key_groups_that_were_not_asked_for_are_left_out() -> None:
    found = sizes_of(inspect(snapshot("rocksdb").directory))
    states = [state for operator in found.operators for state in operator.states]
    assert sum(state.entries for state in states) > 100
    assert all(state.key_groups == [] for state in states)
    assert all(operator.key_groups == [] for operator in found.operators)


@pytest.mark.parametrize(
    ("sizes", "skew"),
    [([], None), ([5], None), ([0, 0], None), ([4, 4], 0.0), ([0, 8], 1.0), ([2, 4, 6], 0.408)],
)
def test_skew_is_the_coefficient_of_variation(sizes: list[int], skew: float | None) -> None:
    assert skew_of(sizes) == (skew if skew is None else pytest.approx(skew, abs=0.001))
