"""Keys are shown as they are, however they are decoded."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import TypeInformation, Types
from penstock.savepoint.key_columns import key_column
from penstock.state.keys import KeyCodec
from penstock.types.signature import type_signature

EDGES = [s * (1 << bits) + d for bits in range(0, 63, 1) for s in (1, -1) for d in (-1, 0, 1)]
LONGS = st.integers(-(2**63), 2**63 - 1)


def shown(keys: list[int | None], type_info: TypeInformation) -> list[int | None]:
    encoded = pa.array([KeyCodec(type_info).encode(key) for key in keys], pa.binary())
    padded = pa.array([b"x", *encoded.to_pylist(), b"y"], pa.binary())
    column = key_column(type_signature(type_info))
    assert (
        column.to_arrow(padded.slice(1, len(keys))).to_pylist()
        == column.to_arrow(encoded).to_pylist()
    )
    found: list[int | None] = column.to_arrow(encoded).to_pylist()
    return found


@given(st.lists(LONGS | st.sampled_from(EDGES)))
def test_integers(keys: list[int | None]) -> None:
    assert shown(keys, Types.LONG()) == keys


def test_integers_at_the_edges() -> None:
    edges: list[int | None] = [*EDGES, 2**63 - 1, -(2**63), 0]
    assert shown(edges, Types.LONG()) == edges


@pytest.mark.parametrize("keys", [[None, 1], [None], []])
def test_integers_among_which_there_is_none(keys: list[int | None]) -> None:
    assert shown(keys, Types.INT()) == keys
