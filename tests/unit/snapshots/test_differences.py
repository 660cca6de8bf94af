"""What changed between two snapshots is what was changed, for all kinds, formats and rescalings."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.common import Row, Types
from penstock.errors import CorruptStateError, IncomparableSnapshotsError
from penstock.snapshots.change_rows import change_rows
from penstock.snapshots.differences import compared_operators
from penstock.snapshots.stored_snapshot import StoredSnapshot
from penstock.state.registry.meta_info import (
    LIST_STATE,
    MAP_STATE,
    RAW_STATE,
    StateMetaInfo,
    TtlMetaInfo,
)
from penstock.state.ttl.timestamps import add_timestamps
from tests.unit.savepoint.saved_states import registered
from tests.unit.snapshots.made_snapshots import FORMATS, Made, entries_of, snapshot_of, stored
from tests.unit.snapshots.test_reading import snapshot

VALUE_STATE = "value state"
PAIR = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])
SEEDS = 40

Expected = dict[str, dict[tuple[Any, ...], tuple[str, Any, Any]]]


def found_changes(before: StoredSnapshot, after: StoredSnapshot) -> Expected:
    """Return by state and key what the reader finds, and check the order of keys."""
    found: Expected = {}
    for pair in compared_operators(before, after):
        last: dict[str, bytes] = {}
        for section in pair.open_sections():
            for state in section.states():
                changes = list(section.changes(state))
                keys = [change.key[2:] for change in changes]
                assert keys == sorted(keys)
                assert not keys or last.get(state.name, b"") < keys[0]
                last[state.name] = keys[-1] if keys else last.get(state.name, b"")
                for row in change_rows(state, changes):
                    key = (row["key"],) if "map_key" not in row else (row["key"], row["map_key"])
                    by_key = found.setdefault(state.name, {})
                    assert key not in by_key
                    by_key[key] = row["change"], row.get("before"), row.get("after")
    return found


def flat(made: Made) -> dict[tuple[Any, ...], Any]:
    """Return the entries of a state as JSON has them."""
    if made.kind == MAP_STATE:
        return {(k, inner): v for k, given in made.values.items() for inner, v in given.items()}
    return {(key,): shown(value) for key, value in made.values.items()}


def shown(value: Any) -> Any:
    if isinstance(value, Row):
        return {"n": value[0], "text": value[1]}
    return value


def differences(before: Mapping[str, Made], after: Mapping[str, Made]) -> Expected:
    """Compute what should be found, from the values themselves."""
    expected: Expected = {}
    for name in {**before, **after}:
        old = flat(before[name]) if name in before else {}
        new = flat(after[name]) if name in after else {}
        changes: dict[tuple[Any, ...], tuple[str, Any, Any]] = {}
        for key in old.keys() | new.keys():
            if key not in new:
                changes[key] = "removed", old[key], None
            elif key not in old:
                changes[key] = "added", None, new[key]
            elif old[key] != new[key]:
                changes[key] = "changed", old[key], new[key]
        if changes:
            expected[name] = changes
    return expected


def some_states(chance: random.Random) -> dict[str, Made]:
    def of(make: Any) -> dict[int, Any]:
        return {key: make() for key in chance.sample(range(60), chance.randint(0, 40))}

    return {
        "total": Made(VALUE_STATE, Types.LONG(), of(lambda: chance.randint(0, 9))),
        "last": Made(LIST_STATE, Types.LIST(Types.LONG()), of(lambda: chance.choices(range(4)))),
        "row": Made(VALUE_STATE, PAIR, of(lambda: Row(chance.randint(0, 3), chance.choice("abc")))),
        "seen": Made(
            MAP_STATE,
            Types.MAP(Types.STRING(), Types.LONG()),
            of(lambda: {t: chance.randint(0, 2) for t in chance.sample("abcdef", 3)}),
        ),
    }


def edited(states: Mapping[str, Made], chance: random.Random) -> dict[str, Made]:
    """Return other states: values of another draw for some keys, some keys gone, some new."""
    other, result = some_states(chance), {}
    for name, made in states.items():
        values = {k: v for k, v in made.values.items() if chance.random() < 0.8}
        values |= {k: v for k, v in other[name].values.items() if chance.random() < 0.3}
        result[name] = made._replace(values=values)
    if chance.random() < 0.2:
        del result[chance.choice(list(result))]
    shuffled = list(result.items())
    chance.shuffle(shuffled)  # tables get other numbers
    return dict(shuffled)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_edits_are_found_exactly(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    states = some_states(chance)
    others = edited(states, chance)
    formats = chance.choice(FORMATS), chance.choice(FORMATS)
    before, after = (
        snapshot_of(
            entries_of(given, Types.LONG()),
            tmp_path / f"job-{side}" / "chk-1",
            formats[side],
            Types.LONG(),
            chance.randint(1, 4),
        )
        for side, given in enumerate((states, others))
    )
    assert found_changes(before, after) == differences(states, others)
    assert found_changes(after, before) == differences(others, states)


@pytest.mark.parametrize("name", ["rocksdb", "memory", "savepoint"])
def test_snapshots_of_one_moment_do_not_differ_whatever_wrote_them(name: str) -> None:
    def total(expected: Expected) -> int:
        return sum(map(len, expected.values()))

    assert total(found_changes(snapshot("hashmap"), snapshot(name))) == 0


def test_an_operator_that_one_side_lacks_has_only_additions_or_removals(tmp_path: Path) -> None:
    whole = snapshot("hashmap")
    less = [o for o in whole.metadata.operators if o.name != "KEYED PROCESS"]
    without = StoredSnapshot(
        msgspec.structs.replace(whole.metadata, operators=less), whole.directory
    )
    for before, after, kind in ((without, whole, "added"), (whole, without, "removed")):
        (pair,) = [p for p in compared_operators(before, after) if p.sections]
        assert pair.shown.name == "KEYED PROCESS"
        counts = Counter(
            change.kind
            for section in pair.open_sections()
            for state in section.states()
            for change in section.changes(state)
        )
        assert counts.keys() == {kind}
        assert counts[kind] > 50


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "memory"])
def test_subtasks_with_the_same_files_are_not_read(tmp_path: Path, backend: str) -> None:
    states = some_states(random.Random(7))
    entries = entries_of(states, Types.LONG())
    job = tmp_path / "job"
    before = snapshot_of(entries, job / "chk-1", backend, Types.LONG(), 4)
    total = states["total"]
    other = {**states, "total": total._replace(values={k: v + 1 for k, v in total.values.items()})}
    after = snapshot_of(entries_of(other, Types.LONG()), job / "chk-2", backend, Types.LONG(), 4)
    # Of the four subtasks only the second is new in the later checkpoint.
    (old,), (new,) = before.metadata.operators, after.metadata.operators
    unchanged = [msgspec.structs.replace(ref, version=ref.version + 9) for ref in old.keyed]
    refs = [unchanged[0], new.keyed[1], unchanged[2], unchanged[3]]
    after = stored([msgspec.structs.replace(new, keyed=refs)], job / "chk-2")
    (pair,) = compared_operators(before, after)
    assert [section.key_groups.start for section in pair.sections] == [32]
    for subtask in (0, 2, 3):
        shutil.rmtree(job / "shared" / "count" / str(subtask), ignore_errors=True)
    found = found_changes(before, after)
    assert found.keys() == {"total"}
    everything = differences(states, other)["total"]
    assert 0 < len(found["total"]) < len(everything)
    assert found["total"].items() <= everything.items()


def test_values_are_compared_in_the_newer_type(tmp_path: Path) -> None:
    narrow = {
        "n": Made(VALUE_STATE, Types.ROW_NAMED(["n"], [Types.LONG()]), {1: Row(1), 2: Row(2)})
    }
    wide = {"n": Made(VALUE_STATE, PAIR, {1: Row(1, None), 2: Row(2, "two")}, 1)}
    before = snapshot_of(entries_of(narrow, Types.LONG()), tmp_path / "a", "hashmap", Types.LONG())
    after = snapshot_of(entries_of(wide, Types.LONG()), tmp_path / "b", "savepoint", Types.LONG())
    was, now = {"n": 2, "text": None}, {"n": 2, "text": "two"}
    assert found_changes(before, after) == {"n": {(2,): ("changed", was, now)}}
    assert found_changes(after, before) == {"n": {(2,): ("changed", now, was)}}


def test_a_state_that_replaced_one_of_its_name_is_removed_and_added(tmp_path: Path) -> None:
    a_value = {"n": Made(VALUE_STATE, Types.LONG(), {1: 1, 2: 2})}
    a_list = {"n": Made(LIST_STATE, Types.LIST(Types.LONG()), {2: [2]})}
    before = snapshot_of(entries_of(a_value, Types.LONG()), tmp_path / "a", "memory", Types.LONG())
    after = snapshot_of(entries_of(a_list, Types.LONG()), tmp_path / "b", "memory", Types.LONG())
    (pair,) = compared_operators(before, after)
    rows = [
        row
        for section in pair.open_sections()
        for state in section.states()
        for row in change_rows(state, section.changes(state))
    ]
    shown = sorted((r["change"], r["key"], r.get("before"), r.get("after")) for r in rows)
    assert shown == [("added", 2, None, [2]), ("removed", 1, 1, None), ("removed", 2, 2, None)]


def test_a_time_to_live_that_began_again_is_a_change_of_its_own(tmp_path: Path) -> None:
    def of(times: dict[int, int], place: str, kind: str) -> StoredSnapshot:
        values = {"n": Made(VALUE_STATE, Types.LONG(), dict.fromkeys(times, 5))}
        info = StateMetaInfo(1, VALUE_STATE, "LONG", ttl=TtlMetaInfo(1000, 0, False))
        entries = [registered("n", info)]
        for (key, value), since in zip(
            entries_of(values, Types.LONG())[1:], times.values(), strict=True
        ):
            entries.append((key, add_timestamps(value, VALUE_STATE, since)))
        return snapshot_of(entries, tmp_path / place, kind, Types.LONG())

    before = of({1: 100, 2: 200}, "a", "hashmap")
    after = of({1: 100, 2: 700}, "b", "savepoint")
    (pair,) = compared_operators(before, after)
    rows = [
        row
        for section in pair.open_sections()
        for state in section.states()
        for row in change_rows(state, section.changes(state))
    ]
    (row,) = rows
    assert (row["change"], row["before"], row["after"]) == ("changed", 5, 5)
    assert (row["expires_before"], row["expires_after"]) == (1200, 1700)


def test_values_from_before_a_time_to_live_was_set_are_the_same(tmp_path: Path) -> None:
    plain = {"n": Made(VALUE_STATE, Types.LONG(), {1: 5})}
    before = snapshot_of(entries_of(plain, Types.LONG()), tmp_path / "a", "hashmap", Types.LONG())
    info = StateMetaInfo(1, VALUE_STATE, "LONG", 1, ttl=TtlMetaInfo(1000, 300, False))
    _, (key, value) = entries_of(plain, Types.LONG())
    entries = [registered("n", info), (key, add_timestamps(value, VALUE_STATE, 300))]
    after = snapshot_of(entries, tmp_path / "b", "rocksdb", Types.LONG())
    assert found_changes(before, after) == {}


def test_a_pair_can_be_looked_up_only_if_both_sides_can(tmp_path: Path) -> None:
    def of(queryable: str, place: str) -> StoredSnapshot:
        info = StateMetaInfo(1, VALUE_STATE, "LONG", queryable=queryable)
        return snapshot_of([registered("n", info)], tmp_path / place, "memory", Types.LONG())

    def shown(before: StoredSnapshot, after: StoredSnapshot) -> str:
        (pair,) = compared_operators(before, after)
        (section,) = pair.open_sections()
        (state,) = section.states()
        return state.shown.info.queryable

    closed, opened, renamed = of("", "a"), of("ns", "b"), of("all", "c")
    assert (shown(closed, opened), shown(opened, closed)) == ("", "")
    assert shown(opened, renamed) == "all"


def test_raw_and_pickled_values_are_shown_as_bytes(tmp_path: Path) -> None:
    def of(raw: bytes) -> StoredSnapshot:
        made = {"raw": Made(RAW_STATE, Types.PICKLED_BYTE_ARRAY(), {"a": raw})}
        place = tmp_path / raw.decode()
        return snapshot_of(entries_of(made, Types.STRING()), place, "rocksdb", Types.STRING())

    change = ("changed", {"base64": "b25l"}, {"base64": "dHdv"})
    assert found_changes(of(b"one"), of(b"two")) == {"raw": {("a",): change}}


def test_other_keys_or_key_groups_are_not_compared(tmp_path: Path) -> None:
    states = some_states(random.Random(1))
    one = snapshot_of(entries_of(states, Types.LONG()), tmp_path / "a", "memory", Types.LONG())
    (operator,) = one.metadata.operators
    for change, reason in (
        ({"max_parallelism": 256}, "max parallelism of operator 'Count' is 128 in one and 256"),
        ({"key_type": "STRING"}, "key type of operator 'Count' is LONG in one and STRING"),
    ):
        other = stored([msgspec.structs.replace(operator, **change)], tmp_path / "b")
        with pytest.raises(IncomparableSnapshotsError, match=reason):
            compared_operators(one, other)


@pytest.mark.parametrize("kind", ["hashmap", "rocksdb", "savepoint"])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, kind: str) -> None:
    entries = entries_of(some_states(random.Random(3)), Types.LONG())
    one = snapshot_of(entries, tmp_path / "a" / "chk-1", "memory", Types.LONG())
    other = snapshot_of(entries, tmp_path / "b" / "chk-1", kind, Types.LONG())
    largest = max(
        (p for p in (tmp_path / "b").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size
    )
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)
    with pytest.raises(CorruptStateError, match=largest.name):
        found_changes(one, other)
