from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Types
from penstock.errors import TypeMismatchError
from penstock.state.key_groups import key_group, key_of, routed_key, subtask_of
from penstock.state.keys import KeyCodec
from penstock.task.partitioning.key_table import KeyTable, key_group_of

MAX = 16

KEYS = st.one_of(
    st.lists(st.text(max_size=3), max_size=12),
    st.lists(st.integers(-3, 2**70), max_size=12),
    st.lists(st.binary(max_size=2), max_size=12),
    st.lists(st.tuples(st.integers(-2, 2), st.text("ab", max_size=2)), max_size=12),
    st.lists(st.tuples(st.integers(-2, 2), st.sampled_from([1, True, 2**64])), max_size=12),
    st.lists(st.tuples(st.integers(0, 2)) | st.tuples() | st.just((1, 2)), max_size=12),
    st.lists(
        st.sampled_from([1, 1.0, True, 0, -0.0, 0.0, False, None, "1", b"1", (1,), (1.0,)]),
        max_size=12,
    ),
)


def rows_by_key(table: KeyTable, parallelism: int) -> dict[tuple[int, bytes], list[int]]:
    found: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for subtask in range(parallelism):
        rows = table.rows_of(subtask)
        for row, position in zip(rows.tolist(), table.positions(rows).tolist(), strict=True):
            found[subtask, table.routed[subtask][position]].append(row)
    return found


def brute_force(keys: list[Any], parallelism: int) -> dict[tuple[int, bytes], list[int]]:
    expected: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        encoded = KeyCodec().encode(key)
        group = key_group(encoded, MAX)
        expected[subtask_of(group, MAX, parallelism), routed_key(encoded, group)].append(row)
    return expected


@settings(max_examples=20, deadline=None)
@given(KEYS, st.integers(1, 5))
def test_a_key_table_equals_encoding_key_by_key(keys: list[Any], parallelism: int) -> None:
    table = KeyTable(keys, KeyCodec(), MAX, parallelism)
    assert rows_by_key(table, parallelism) == brute_force(keys, parallelism)
    assert all(len(set(routed)) == len(routed) for routed in table.routed)


def test_one_and_one_point_zero_and_true_are_three_keys() -> None:
    table = KeyTable([1, 1.0, True, 1], KeyCodec(), MAX, 1)
    assert sorted(rows_by_key(table, 1).values()) == [[0, 3], [1], [2]]


def test_a_declared_key_type_makes_them_one_key() -> None:
    table = KeyTable([1, 1.0], KeyCodec(Types.DOUBLE()), MAX, 1)
    assert list(rows_by_key(table, 1).values()) == [[0, 1]]


def test_a_routed_key_contains_its_key_group_and_key() -> None:
    routed = routed_key(KeyCodec().encode("a"), 7)
    assert key_group_of(routed) == 7
    assert KeyCodec().decode(key_of(routed)) == "a"


def test_tuples_of_a_declared_type_are_distinct_as_their_encodings_are() -> None:
    keys = [(1, "a"), (2, "a"), (1, "b"), (1, "a"), (300, "a")]
    codec = KeyCodec(Types.TUPLE([Types.LONG(), Types.STRING()]))
    table = KeyTable(keys, codec, MAX, 2)
    assert rows_by_key(table, 2) == brute_force(keys, 2)


def test_items_that_become_equal_in_their_type_make_equal_tuples() -> None:
    table = KeyTable([(1,), (1.0,)], KeyCodec(Types.TUPLE([Types.DOUBLE()])), MAX, 1)
    assert list(rows_by_key(table, 1).values()) == [[0, 1]]
    close = [(2**53,), (2**53 + 1,)]
    table = KeyTable(close, KeyCodec(Types.TUPLE([Types.DOUBLE()])), MAX, 1)
    assert list(rows_by_key(table, 1).values()) == [[0, 1]]


def test_an_item_that_does_not_fit_its_type_is_refused() -> None:
    with pytest.raises(TypeMismatchError):
        KeyTable([(1,), (2**40,)], KeyCodec(Types.TUPLE([Types.INT()])), MAX, 1)
