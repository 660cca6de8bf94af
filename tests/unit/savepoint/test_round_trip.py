"""What goes into a savepoint comes out of it, byte by byte."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import TypeInformation, Types
from penstock.errors import CorruptStateError, StateDeclaredTwiceError
from penstock.savepoint import read, tables, write
from penstock.savepoint.layout import SavedOperator
from penstock.savepoint.read import entries_of, verify_files
from penstock.savepoint.write import finalize_files, write_subtask
from penstock.state.backends.refs import StagedName, StateLocation
from penstock.state.backends.registry import create_state_backend
from penstock.state.key_groups import KeyGroupRange, key_group_range
from penstock.state.registry.meta_info import MAP_STATE, RAW_STATE, StateMetaInfo
from penstock.types.signature import type_signature
from tests.unit.savepoint.saved_states import (
    ALL,
    MAX_PARALLELISM,
    Entry,
    registered,
    save,
    state_entries,
    within,
)
from tests.unit.types.typed_values import KEY_TYPES, TYPES, values_of

VALUE = "value state"
KEYS = st.one_of(st.text(max_size=6), st.integers(), st.none(), st.tuples(st.text(), st.booleans()))
RAW = Types.PRIMITIVE_ARRAY(Types.BYTE())


@st.composite
def some_state(draw: st.DrawFn) -> tuple[str, TypeInformation, st.SearchStrategy[Any]]:
    """Draw the kind and type of a state, and what its values are."""
    inner = draw(TYPES)
    match draw(st.sampled_from([VALUE, "list state", MAP_STATE, RAW_STATE])):
        case "list state":
            listed = Types.LIST(inner)
            return "list state", listed, values_of(listed)
        case "map state":
            key = draw(KEY_TYPES)
            mapping = Types.MAP(key, inner)
            return MAP_STATE, mapping, values_of(mapping)
        case "raw state":
            return RAW_STATE, RAW, st.binary(max_size=5)
    return VALUE, inner, values_of(inner)


def saved_and_read(
    entries: list[Entry], key_type: TypeInformation | None, before: int, after: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        files = save(path, entries, key_type, before)
        verify_files(path, files)
        for subtask in range(after):
            mine = key_group_range(MAX_PARALLELISM, after, subtask)
            assert list(entries_of(path, files, mine)) == within(entries, mine)


@settings(max_examples=20)
@given(st.data(), st.integers(1, 3), st.integers(1, 3))
def test_every_kind_and_type_of_state_is_restored_at_any_parallelism(
    data: st.DataObject, before: int, after: int
) -> None:
    registry, entries = [], []
    for table in range(1, data.draw(st.integers(2, 3))):
        kind, type_info, values = data.draw(some_state())
        name = data.draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3))
        registry.append(
            registered(f"{name}{table}", StateMetaInfo(table, kind, type_signature(type_info)))
        )
        pairs = data.draw(st.lists(st.tuples(KEYS, values), max_size=8))
        entries += state_entries(table, kind, type_info, None, pairs)
    saved_and_read(sorted(registry) + entries, None, before, after)


@settings(max_examples=15)
@given(st.data())
def test_keys_of_every_type_round_trip(data: st.DataObject) -> None:
    key_type = data.draw(KEY_TYPES)
    keys = data.draw(st.lists(st.none() | values_of(key_type), max_size=8))
    entries = state_entries(1, VALUE, Types.INT(), key_type, ((key, 1) for key in keys))
    saved_and_read([registered("n", StateMetaInfo(1, VALUE, "INT")), *entries], key_type, 2, 3)


EXTREMES: list[tuple[TypeInformation, list[Any]]] = [
    (Types.LONG(), [-(2**63), 2**63 - 1]),
    (Types.BIG_INT(), [0, -1, 127, 128, -128, -129, 10**5000, -(10**5000)]),
    (Types.BIG_DEC(), [Decimal(10) ** 60 + 1, Decimal("1E+400"), Decimal("-0.00"), Decimal("NaN")]),
    (Types.DOUBLE(), [float("nan"), float("-inf"), -0.0, 5e-324]),
    (Types.FLOAT(), [float("nan"), float("inf"), -0.0]),
    (Types.STRING(), ["", "\0", "grüße"]),
    (Types.MAP(Types.STRING(), Types.LONG()), [{}, {"b": 1, "a": None}]),
    (Types.TUPLE([]), [(), ()]),
    (Types.ROW([]), [(), ()]),
    (Types.LIST(Types.TUPLE([])), [[], [(), ()]]),
]


@pytest.mark.parametrize(("type_info", "values"), EXTREMES, ids=[repr(t) for t, _ in EXTREMES])
def test_extreme_values_round_trip(type_info: TypeInformation, values: list[Any]) -> None:
    entries = state_entries(1, VALUE, type_info, Types.LONG(), enumerate(values))
    saved_and_read(
        [registered("n", StateMetaInfo(1, VALUE, type_signature(type_info))), *entries], None, 1, 2
    )


def test_long_keys_and_keys_that_are_not_text_round_trip() -> None:
    keys = ["x" * 253, "x" * 254, "x" * 70_000, "\ud800", "a\0b", b"\xff" * 300, (None, 1.5)]
    for kind, type_info, value in (
        (VALUE, Types.INT(), 1),
        (MAP_STATE, Types.MAP(Types.PICKLED_BYTE_ARRAY(), Types.INT()), dict.fromkeys(keys)),
    ):
        entries = state_entries(1, kind, type_info, None, ((key, value) for key in keys))
        info = StateMetaInfo(1, kind, type_signature(type_info))
        saved_and_read([registered("n", info), *entries], None, 2, 3)
    texts = [key for key in keys if isinstance(key, str)]
    entries = state_entries(1, VALUE, Types.INT(), Types.STRING(), ((key, 1) for key in texts))
    saved_and_read(
        [registered("n", StateMetaInfo(1, VALUE, "INT")), *entries], Types.STRING(), 1, 1
    )


def test_many_row_groups_are_read_only_as_far_as_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 100)
    entries = state_entries(1, VALUE, Types.LONG(), Types.LONG(), ((n, n) for n in range(5000)))
    entries = [registered("n", StateMetaInfo(1, VALUE, "LONG")), *entries]
    files = save(tmp_path, entries, Types.LONG())
    assert list(entries_of(tmp_path, files, ALL)) == entries
    for key_groups in (KeyGroupRange(17, 18), KeyGroupRange(0, 1), KeyGroupRange(100, 128)):
        found = list(entries_of(tmp_path, files, key_groups))
        assert found == within(entries, key_groups)
        with pq.ParquetFile(tmp_path / files[0].path) as parquet:
            assert parquet.metadata.num_row_groups == 50
            assert len(list(read.row_groups_of(parquet, key_groups))) < 15
    assert list(entries_of(tmp_path, files, KeyGroupRange(5, 5))) == entries[:1]


def test_large_values_make_small_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "BYTES_PER_GROUP", 10_000)
    noise = random.Random(1)
    values = [(n, noise.randbytes(3000)) for n in range(50)]
    entries = state_entries(1, RAW_STATE, RAW, Types.LONG(), values)
    entries = [registered("n", StateMetaInfo(1, RAW_STATE, type_signature(RAW))), *entries]
    (file,) = save(tmp_path, entries, Types.LONG())
    assert pq.ParquetFile(tmp_path / file.path).metadata.num_row_groups > 10
    assert list(entries_of(tmp_path, [file], ALL)) == entries


@pytest.mark.parametrize("after", ["memory", "hashmap"])
@pytest.mark.parametrize("before", ["memory", "hashmap"])
def test_a_savepoint_leads_from_any_backend_to_any_other(
    tmp_path: Path, before: str, after: str
) -> None:
    values = ((f"k{n}", n) for n in range(1000))
    entries = state_entries(1, VALUE, Types.LONG(), Types.STRING(), values)
    entries = [registered("n", StateMetaInfo(1, VALUE, "LONG")), *entries]
    old, new = create_state_backend(before, "count"), create_state_backend(after, "count")
    old_place = StateLocation(tmp_path / "old", tmp_path / "old-local")
    new_place = StateLocation(tmp_path / "new", tmp_path / "new-local")
    ref = old.load(iter(entries), old_place, StagedName("a1", 0, 0, 0, 0))
    operator = SavedOperator("count", "STRING", MAX_PARALLELISM)
    savepoint = tmp_path / "savepoint"
    files = write_subtask(old.entries(old_place, ref), operator, savepoint, 0, "a1")
    files = finalize_files(savepoint, files)
    entries_read = entries_of(savepoint, files, ALL)
    ref = new.load(entries_read, new_place, StagedName("a2", 0, 0, 0, 0))
    assert list(new.entries(new_place, ref)) == entries


def test_pickled_values_are_never_loaded(tmp_path: Path) -> None:
    bomb = b"\x80\x05cno_such_module\nbomb\n."
    (at, _), *_ = state_entries(1, RAW_STATE, RAW, Types.LONG(), [(1, b"")])
    packed = msgspec.msgpack.encode([bomb, bomb])
    entries = [
        registered("a", StateMetaInfo(1, VALUE, "PICKLED_BYTE_ARRAY")),
        registered("b", StateMetaInfo(2, "list state", "LIST(PICKLED_BYTE_ARRAY)")),
        (at, bomb),
        (b"\0\2" + at[2:], packed),
    ]
    files = save(tmp_path, entries, Types.LONG())
    assert list(entries_of(tmp_path, files, ALL)) == entries
    assert pq.read_table(tmp_path / "count" / "b")["value"].to_pylist() == [[bomb, bomb]]


def test_one_row_group_at_a_time_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 100)
    entries = state_entries(1, VALUE, Types.LONG(), Types.LONG(), ((n, n) for n in range(1000)))
    taken = 0
    remaining = []
    fill = write._PartWriter.write

    def counted(self: Any, keys: list[bytes], values: list[bytes]) -> None:
        remaining.append(taken)
        fill(self, keys, values)

    def given_one_by_one() -> Iterator[Entry]:
        nonlocal taken
        for entry in [registered("n", StateMetaInfo(1, VALUE, "LONG")), *entries]:
            taken += 1
            yield entry

    monkeypatch.setattr(write._PartWriter, "write", counted)
    operator = SavedOperator("count", "LONG", MAX_PARALLELISM)
    write_subtask(given_one_by_one(), operator, tmp_path, 0, "a1")
    assert remaining == [*range(102, 1002, 100), 1001]


def test_declared_states_without_values_are_known_again(tmp_path: Path) -> None:
    entries = [registered(name, StateMetaInfo(t, VALUE, "INT")) for t, name in ((2, "a"), (1, "b"))]
    files = save(tmp_path, entries, None, 2)
    assert [file.rows for file in files] == [0, 0, 0, 0]
    assert list(entries_of(tmp_path, files, ALL)) == entries


def test_subtasks_may_number_their_tables_differently(tmp_path: Path) -> None:
    operator = SavedOperator("count", "LONG", MAX_PARALLELISM)
    files, expected = [], []
    for subtask, numbers in enumerate(({"a": 1, "b": 2}, {"b": 1, "a": 2})):
        mine = key_group_range(MAX_PARALLELISM, 2, subtask)
        entries = [
            registered(n, StateMetaInfo(t, VALUE, "LONG")) for n, t in sorted(numbers.items())
        ]
        for name, table in sorted(numbers.items(), key=lambda item: item[1]):
            offset = 100 if name == "b" else 0
            values = ((n, n + offset) for n in range(50))
            all_of_it = state_entries(table, VALUE, Types.LONG(), Types.LONG(), values)
            entries += within(all_of_it, mine)
            values = ((n, n + offset) for n in range(50))
            place = {"a": 1, "b": 2}[name]
            expected += within(
                state_entries(place, VALUE, Types.LONG(), Types.LONG(), values), mine
            )
        files += write_subtask(iter(entries), operator, tmp_path, subtask, "a1")
    found = list(entries_of(tmp_path, files, ALL))
    assert found == [
        registered("a", StateMetaInfo(1, VALUE, "LONG")),
        registered("b", StateMetaInfo(2, VALUE, "LONG")),
        *sorted(expected),
    ]


def mixed(tmp_path: Path, types: list[tuple[TypeInformation, int, Any]]) -> list[Any]:
    operator = SavedOperator("count", "LONG", MAX_PARALLELISM)
    files = []
    for subtask, (type_info, generation, value) in enumerate(types):
        info = StateMetaInfo(1, VALUE, type_signature(type_info), generation)
        values = ((n, value) for n in range(20))
        entries = within(
            state_entries(1, VALUE, type_info, Types.LONG(), values),
            key_group_range(MAX_PARALLELISM, len(types), subtask),
        )
        entries = [registered("n", info), *entries]
        files += write_subtask(iter(entries), operator, tmp_path, subtask, "a1")
    return list(entries_of(tmp_path, files, ALL, "count"))


@pytest.mark.parametrize("turned", [False, True])
def test_a_state_that_only_some_subtasks_have_migrated_is_restored_migrated(
    tmp_path: Path, turned: bool
) -> None:
    types = [(Types.INT(), 0, 7), (Types.DOUBLE(), 1, 7.0)]
    expected = state_entries(1, VALUE, Types.DOUBLE(), Types.LONG(), ((n, 7.0) for n in range(20)))
    found = mixed(tmp_path, types[::-1] if turned else types)
    assert found == [registered("n", StateMetaInfo(1, VALUE, "DOUBLE", 1)), *expected]


def test_subtasks_that_disagree_on_a_type_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(StateDeclaredTwiceError, match="step 'count': state 'n'"):
        mixed(tmp_path, [(Types.INT(), 0, 7), (Types.STRING(), 0, "x")])


def one_file(tmp_path: Path) -> tuple[list[Any], Path]:
    values = ((n, n) for n in range(2000))
    entries = state_entries(1, VALUE, Types.LONG(), Types.LONG(), values)
    files = save(
        tmp_path, [registered("n", StateMetaInfo(1, VALUE, "LONG")), *entries], Types.LONG()
    )
    return files, tmp_path / files[0].path


def test_a_damaged_short_or_missing_file_is_rejected_by_name(tmp_path: Path) -> None:
    files, path = one_file(tmp_path)
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1
    for bad in (bytes(flipped), good[:-1], good + b"\0", None):
        if bad is None:
            path.unlink()
        else:
            path.write_bytes(bad)
        with pytest.raises(CorruptStateError, match=r"count/n/part-0\.parquet"):
            list(entries_of(tmp_path, files, ALL))
        with pytest.raises(CorruptStateError, match=r"count/n/part-0\.parquet"):
            verify_files(tmp_path, files)


def test_files_without_the_wanted_key_groups_are_not_opened(tmp_path: Path) -> None:
    files, path = one_file(tmp_path)
    path.unlink()
    assert len(list(entries_of(tmp_path, files, KeyGroupRange(500, 600)))) == 1


def test_two_files_with_the_same_key_groups_are_rejected(tmp_path: Path) -> None:
    files, _ = one_file(tmp_path)
    with pytest.raises(CorruptStateError, match="same key groups"):
        list(entries_of(tmp_path, files * 2, ALL))


def test_a_retried_task_and_its_forerunner_do_not_meet(tmp_path: Path) -> None:
    operator = SavedOperator("count", "LONG", MAX_PARALLELISM)
    entries = state_entries(1, VALUE, Types.LONG(), Types.LONG(), ((n, n) for n in range(10)))
    entries = [registered("n", StateMetaInfo(1, VALUE, "LONG")), *entries]
    first = write_subtask(iter(entries), operator, tmp_path, 0, "a1")
    second = write_subtask(iter(entries), operator, tmp_path, 0, "a2")
    assert not list(tmp_path.glob("*/*/[!.]*"))
    kept = finalize_files(tmp_path, second)
    assert kept == finalize_files(tmp_path, second) == finalize_files(tmp_path, kept)
    assert [path.name for path in tmp_path.glob("*/*/*")] == ["part-0.parquet"]
    assert list(entries_of(tmp_path, kept, ALL)) == entries
    with pytest.raises(CorruptStateError, match="missing"):
        finalize_files(tmp_path / "elsewhere", first)


def test_a_task_that_fails_leaves_no_files(tmp_path: Path) -> None:
    operator = SavedOperator("count", "LONG", MAX_PARALLELISM)
    entries = state_entries(1, VALUE, Types.LONG(), Types.LONG(), ((n, n) for n in range(10)))
    stray = state_entries(9, VALUE, Types.LONG(), Types.LONG(), [(1, 1)])
    entries = [registered("n", StateMetaInfo(1, VALUE, "LONG")), *entries, *stray]
    with pytest.raises(CorruptStateError, match="table 9"):
        write_subtask(iter(entries), operator, tmp_path, 0, "a1")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_uids_and_state_names_may_look_like_paths(tmp_path: Path) -> None:
    entries = state_entries(1, VALUE, Types.LONG(), Types.LONG(), [(1, 1)])
    entries = [registered("../n", StateMetaInfo(1, VALUE, "LONG")), *entries]
    inside = tmp_path / "savepoint"
    files = save(inside, entries, Types.LONG(), uid="../../count")
    assert list(entries_of(inside, files, ALL)) == entries
    assert list(tmp_path.iterdir()) == [inside]
