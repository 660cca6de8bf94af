"""Rows encoded in blocks equal rows encoded one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Types
from penstock.connectors.postgres.rows.block_encoder import block_encoder
from penstock.connectors.postgres.rows.text_encoder import LineEncoder
from penstock.connectors.postgres.rows.writer import decode_staged
from tests.unit.connectors.postgres.rows.test_writer import data, writer

ORDER = Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])
PAIR = Types.TUPLE([Types.INT(), Types.STRING()])

rows = st.tuples(st.text(st.characters(codec=None)), st.integers(-(2**63), 2**63 - 1), st.floats())


@pytest.mark.parametrize("prefix", ["", "f\t"])
@given(given=st.lists(rows, min_size=1))
def test_a_block_is_rejected_or_equals_the_lines_of_its_rows(
    given: list[tuple[str, int, float]], prefix: str
) -> None:
    encode = block_encoder(ORDER, prefix)
    assert encode is not None
    text = encode(given)
    if all(row[0].isprintable() and "\\" not in row[0] for row in given):
        line = LineEncoder(range(3), None).line
        assert text == "".join(prefix + line(row) for row in given)
    else:
        assert text is None


@pytest.mark.parametrize(
    "odd",
    [
        ("a",),
        ["b", 1, 1.0],
        ("a", 1, 1.0, 2),
        ("a", 1, 1),
        ("a", True, 1.0),
        ("a", 2**63, 1.0),
        ("a", -(2**63) - 1, 1.0),
        ("a", None, 1.0),
        (None, 1, 1.0),
        ("a\tb", 1, 1.0),
        ("a\\", 1, 1.0),
        ("\ud800", 1, 1.0),
        "abc",
    ],
)
def test_a_block_with_an_unusual_row_is_rejected(odd: Any) -> None:
    encode = block_encoder(ORDER, "")
    assert encode is not None
    assert encode([("a", 1, 1.0), ("b", 2, 2.0)]) == "a\t1\t1.0\nb\t2\t2.0\n"
    assert encode([("a", 1, 1.0), odd, ("b", 2, 2.0)]) is None


@pytest.mark.parametrize(
    "type_info",
    [
        None,
        Types.STRING(),
        Types.TUPLE([]),
        Types.TUPLE([Types.FLOAT()]),
        Types.TUPLE([Types.LONG(), Types.SQL_DATE()]),
        Types.ROW([Types.LONG()]),
    ],
)
def test_other_types_have_no_block_encoder(type_info: Any) -> None:
    assert block_encoder(type_info, "") is None


def test_blocks_and_single_rows_keep_their_order(tmp_path: Path) -> None:
    one = writer(tmp_path, type_info=PAIR)
    assert one.write_many([(1, "a"), (2, "b")])
    one.write((3, "c\td"))
    assert not one.write_many([(4, "e"), (5, "f\\")])
    assert one.write_many([(6, "g")])
    rows = decode_staged(one.stage())
    assert (rows.rows, rows.width, rows.columns) == (4, 2, ("id", "name"))
    assert data(rows) == b"1\ta\n2\tb\n3\tc\\td\n6\tg\n"


def test_rows_of_a_sink_with_keys_have_a_delete_flag(tmp_path: Path) -> None:
    one = writer(tmp_path, type_info=PAIR, deletes=True)
    assert one.write_many([(1, "a"), (2, "b")])
    one.write((3, "c"))
    assert data(decode_staged(one.stage())) == b"f\t1\ta\nf\t2\tb\nf\t3\tc\n"


def test_a_block_of_another_width_than_the_table_is_rejected(tmp_path: Path) -> None:
    assert not writer(tmp_path, ("id",), PAIR).write_many([(1, "a")])
    unnamed = writer(tmp_path, None, PAIR)
    assert unnamed.write_many([(1, "a")])
    assert decode_staged(unnamed.stage()).width == 2
