"""Columns become the bytes and values that a program would have stored."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Types
from penstock.common.row import Row
from penstock.common.time import Instant
from penstock.common.typeinfo import TypeInformation
from penstock.savepoint.columns import value_column
from penstock.snapshots.writing import blocks as blocks_module
from penstock.snapshots.writing.blocks import BlockBuilder, sorted_entries
from penstock.snapshots.writing.columns.key_bytes import KeyEncoder, groups_of, routed
from penstock.snapshots.writing.columns.value_columns import ValueEncoder
from penstock.snapshots.writing.columns.wrapped_columns import unwrapped
from penstock.state.key_groups import key_group, routed_key, subtask_of
from penstock.state.keys import KeyCodec
from penstock.state.registry.meta_info import StateMetaInfo
from penstock.types.serializers import serializer_for
from penstock.types.signature import type_signature

VALUE = "value state"
LONGS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(LONGS | st.integers(-300, 300), min_size=1))
def test_integer_keys_are_encoded_as_one_by_one(numbers: list[int]) -> None:
    encoded, bad = KeyEncoder("LONG").encode(pa.array(numbers, pa.int64()))
    codec = KeyCodec(Types.LONG())
    assert (encoded.to_pylist(), bad) == ([codec.encode(number) for number in numbers], [])


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_text_keys_are_encoded_and_routed_as_one_by_one(texts: list[str]) -> None:
    texts = [*texts, "x" * 300]
    encoded, _ = KeyEncoder("STRING").encode(pa.array(texts, pa.string()))
    codes = [KeyCodec(Types.STRING()).encode(text) for text in texts]
    assert encoded.to_pylist() == codes
    stored = routed(encoded, groups_of(encoded, 100))
    assert stored.to_pylist() == [routed_key(code, key_group(code, 100)) for code in codes]


def test_keys_that_are_null_or_of_another_type_are_named_by_row() -> None:
    encoded, bad = KeyEncoder("BYTE").encode(pa.array([1, None, 1000]))
    assert [(one.row, one.reason) for one in bad] == [
        (1, "it is null"),
        (2, "it is not of that type"),
    ]
    assert len(encoded) == 3


ROW = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])
UTC = datetime.UTC


@pytest.mark.parametrize(
    ("type_info", "given", "value"),
    [
        (Types.LONG(), pa.array([7], pa.int8()), 7),
        (Types.DOUBLE(), pa.array([0.5], pa.float32()), 0.5),
        (Types.DOUBLE(), pa.array([2], pa.int64()), 2.0),
        (Types.BIG_INT(), pa.array(["12345678901234567890123"]), 12345678901234567890123),
        (Types.BIG_INT(), pa.array([Decimal(3)]), 3),
        (Types.BIG_DEC(), pa.array([Decimal("1.50")]), Decimal("1.50")),
        (Types.SQL_DATE(), pa.array([datetime.date(2026, 1, 2)]), datetime.date(2026, 1, 2)),
        (Types.INSTANT(), pa.array([datetime.datetime(1970, 1, 2, tzinfo=UTC)]), Instant(86400, 0)),
        (Types.INSTANT(), pa.array([{"seconds": 5, "nanos": 6}]), Instant(5, 6)),
        (Types.TUPLE([Types.LONG(), Types.STRING()]), pa.array([{"a": 1, "b": "x"}]), (1, "x")),
        (ROW, pa.array([{"text": None, "n": 1}]), Row(n=1, text=None)),
        (Types.LIST(Types.LONG()), pa.array([[1, 2]]), [1, 2]),
        (Types.LIST(Types.LONG()), pa.array([[{"value": 1}]]), [1]),
        (
            Types.MAP(Types.STRING(), Types.LONG()),
            pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
            {"a": 1},
        ),
    ],
)
def test_values_are_what_a_program_would_have_stored(
    type_info: TypeInformation, given: pa.Array, value: Any
) -> None:
    signature = type_signature(type_info)
    encoder = ValueEncoder(StateMetaInfo(1, VALUE, signature))
    column, bad = encoder.encode(unwrapped(given, type_info))
    assert bad == []
    (stored,) = value_column(VALUE, signature).from_arrow(column)
    assert stored == serializer_for(type_info).encode(value)
    (one_by_one,), _ = encoder.stored(unwrapped(given, type_info))
    assert one_by_one == stored


@pytest.mark.parametrize(
    ("kind", "signature", "given", "reasons"),
    [
        (VALUE, "LONG", pa.array([1, None]), {1: "it is null"}),
        (VALUE, "BYTE", pa.array([1, 300]), {1: "it is not of that type"}),
        ("list state", "LIST(LONG)", pa.array([[1], []]), {1: "it is an empty list"}),
        ("map state", "MAP(STRING, LONG)", pa.array([1, None]), {}),
        ("raw state", "PRIMITIVE_ARRAY(BYTE)", pa.array(["x"]), {0: "it is not of that type"}),
    ],
)
def test_values_that_a_state_cannot_hold_are_named_by_row(
    kind: str, signature: str, given: pa.Array, reasons: dict[int, str]
) -> None:
    column, bad = ValueEncoder(StateMetaInfo(1, kind, signature)).encode(given)
    assert len(column) == len(given)
    assert {one.row: one.reason.split(":")[0] for one in bad} == reasons


@given(st.lists(st.text("abc", max_size=4), unique=True, max_size=60), st.integers(1, 5))
def test_blocks_of_a_subtask_have_its_entries_in_order(texts: list[str], parallelism: int) -> None:
    highest = 10
    encoded, _ = KeyEncoder("STRING").encode(pa.array(texts, pa.string()))
    groups = groups_of(encoded, highest)
    builder = BlockBuilder(pa.string(), highest, parallelism)
    blocks = list(builder.add(groups, routed(encoded, groups), pa.array(texts, pa.string())))
    blocks += builder.finish()
    found: list[tuple[bytes, str]] = []
    for subtask in range(parallelism):
        mine = sorted((b.band, b.data) for b in blocks if b.subtask == subtask)
        buffers = ((band, pa.py_buffer(data)) for band, data in mine)
        for keys, values in sorted_entries(buffers, pa.string()):
            for key in keys.to_pylist():
                group = int.from_bytes(key[:2], "big")
                assert subtask_of(group, highest, parallelism) == subtask
            found += zip(keys.to_pylist(), values.to_pylist(), strict=True)
    assert found == sorted(found)
    assert sorted(text for _, text in found) == sorted(texts)


@pytest.mark.parametrize("most", [1, 40, 1 << 30])
def test_a_band_that_is_too_large_for_one_array_is_sorted_in_pieces(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(blocks_module, "_BYTES_IN_ARRAY", most)
    schema = blocks_module.block_schema(pa.list_(pa.string()))
    numbers = [(7 * n) % 50 for n in range(50)]
    made = []
    for start in range(0, 50, 10):
        part = numbers[start : start + 10]
        columns = [
            pa.array([b"%02d" % n for n in part], pa.binary()),
            pa.array([[str(n)] * (n % 3) for n in part], pa.list_(pa.string())),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        made.append((3, batch.serialize()))
    pieces = list(sorted_entries(made, pa.list_(pa.string())))
    assert (len(pieces) > 1) == (most < 1 << 30)
    found = [pair for k, v in pieces for pair in zip(k.to_pylist(), v.to_pylist(), strict=True)]
    assert found == [(b"%02d" % n, [str(n)] * (n % 3)) for n in range(50)]
