"""Values as COPY text, read back by rules of the manual."""

import datetime as dt
import enum
import re
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row
from penstock.common.time import Instant
from penstock.connectors.postgres.rows.text_encoder import (
    UNWRITABLE,
    LineEncoder,
    encode_json,
    encode_value,
)

_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}


def read_copy(field: str) -> str | None:
    """Read a field as COPY does."""
    if field == "\\N":
        return None
    characters = iter(field)
    return "".join(c if c != "\\" else _LETTERS[next(characters)] for c in characters)


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
ODD_TEXTS = st.text(st.sampled_from("\\\t\n\r\vabN.é€\u2028\U0001f600\x7f\"'{},"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(TEXTS, ODD_TEXTS, st.none()), min_size=1))
def test_a_line_decodes_to_the_strings_it_was_made_of(texts: list[str | None]) -> None:
    line = LineEncoder(range(len(texts)), None).line(texts)
    assert (line[-1], line.count("\n")) == ("\n", 1)
    assert list(map(read_copy, line[:-1].split("\t"))) == texts


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\\N"),
        ("\\N", "\\\\N"),
        ("\\.", "\\\\."),
        (True, "t"),
        (False, "f"),
        (2**80, str(2**80)),
        (Level.HIGH, "3"),
        (np.int64(7), "7"),
        (np.float64(0.1), "0.1"),
        (np.float32(0.5), "0.5"),
        (np.bool_(True), "t"),
        (0.1, "0.1"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (Name("a\tb"), "a\\tb"),
        (b"\x00\xff", "\\\\x00ff"),
        (bytearray(b"a"), "\\\\x61"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.time(1, 2, 3), "01:02:03"),
        (dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC), "2026-01-02T03:04:05.000006+00:00"),
        (dt.timedelta(-1, 3, 4), "-1 days 3 seconds 4 microseconds"),
        (Instant(1, 2_000), "1970-01-01T00:00:01.000002+00:00"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        ({"a": "\n"}, '{"a": "\\\\n"}'),
        (Row(a=1, b=Row(2, 3)), '{"a": 1, "b": [2, 3]}'),
        ([1, None, 2], '{"1",NULL,"2"}'),
        ([["a"], ["b"]], '{{"a"},{"b"}}'),
        (['"\\'], '{"\\\\"\\\\\\\\"}'),
        ((True, b"\x01"), '{"t","\\\\\\\\x01"}'),
        ([], "{}"),
    ],
)
def test_each_class_has_its_encoding(value: Any, text: str) -> None:
    assert encode_value(value) == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a\0b", "NUL"),
        ("\ud800", "lone surrogate"),
        (["a\0b"], "NUL"),
        ({"a": "\ud800"}, "lone surrogate"),
        ({"a": float("nan")}, "JSON"),
        ({"a": object()}, "a object has no JSON representation"),
        (object(), "a object has no PostgreSQL representation"),
        (Color.RED, "a Color has no PostgreSQL representation"),
        (1j, "a complex has no PostgreSQL representation"),
        (Instant(10**15, 0), "out of range"),
    ],
)
def test_an_unwritable_value_is_reported_with_its_column(value: Any, message: str) -> None:
    encoder = LineEncoder((0, 1), ("id", "note"))
    with pytest.raises(UNWRITABLE):
        encoder.line((1, value))
    error = encoder.error_for((1, value))
    assert error.column == "note"
    assert re.search(message, str(error))


def test_json_columns_accept_any_value_as_json() -> None:
    encoder = LineEncoder((0, 1), ("id", "tags"), frozenset({"tags"}))
    encode = encoder.line
    assert encode((1, ["a", 1])) == '1\t["a", 1]\n'
    assert encode((1, "text")) == '1\t"text"\n'
    assert encode((1, None)) == "1\t\\N\n"
    with pytest.raises(UNWRITABLE):
        encode((1, {1, 2}))
    assert "column 'tags'" in str(encoder.error_for((1, {1, 2})))


def test_values_without_a_json_type_become_json_strings() -> None:
    value = {"at": dt.date(2026, 1, 2), "id": UUID(int=1), "sum": Decimal("1.10")}
    expected = '{"at": "2026-01-02", "id": "00000000-0000-0000-0000-000000000001", "sum": "1.10"}'
    assert encode_json(value) == expected
