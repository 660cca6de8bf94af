"""Values written to a real table are read back unchanged."""
# ruff: noqa: DTZ001 - timestamps without a time zone are one of the types

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.connectors.postgres.rows.text_encoder import LineEncoder
from tests.contracts.sink_harness import Attempt, Case
from tests.servers.postgres_sink_case import new_schema, run, sink_into

pytestmark = pytest.mark.postgres

TEXTS = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    st.text(st.sampled_from("\\\t\n\r\v\b.N{}\",'é€\u2028\U0001f600\x7f"), max_size=8),
)
MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
COLUMNS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "a_text": ("text", TEXTS),
    "an_int": ("bigint", st.integers(-(2**63), 2**63 - 1)),
    "a_float": ("double precision", st.floats(allow_nan=False)),
    "a_numeric": ("numeric", st.decimals(allow_nan=False, allow_infinity=False)),
    "a_bool": ("boolean", st.booleans()),
    "some_bytes": ("bytea", st.binary(max_size=20)),
    "a_date": ("date", st.dates()),
    "a_time": ("time", st.times()),
    "a_moment": ("timestamp", MOMENTS),
    "an_instant": ("timestamptz", MOMENTS.map(lambda m: m.replace(tzinfo=dt.UTC))),
    "an_interval": ("interval", st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999))),
    "a_uuid": ("uuid", st.uuids()),
    "a_doc": ("jsonb", st.dictionaries(TEXTS, JSON, max_size=3)),
    "texts": ("text[]", st.lists(st.none() | TEXTS, max_size=4)),
    "numbers": ("bigint[]", st.lists(st.none() | st.integers(-9, 9), max_size=4)),
    "blobs": ("bytea[]", st.lists(st.binary(max_size=5), max_size=3)),
    "docs": ("jsonb[]", st.lists(st.dictionaries(TEXTS, JSON, max_size=2), max_size=2)),
}
ROWS = st.lists(
    st.tuples(*(st.none() | strategy for _, strategy in COLUMNS.values())), min_size=1, max_size=8
)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=ROWS)
def test_any_row_is_read_back_unchanged(values_connection: Any, rows: list[Any]) -> None:
    encode = LineEncoder(range(len(COLUMNS)), None).line
    cursor = values_connection.cursor()
    cursor.execute("TRUNCATE everything")
    names = ", ".join(COLUMNS)
    with cursor.copy(f"COPY everything ({names}) FROM STDIN") as copy:
        copy.write("".join(map(encode, rows)))
    cursor.execute(f"SELECT {names} FROM everything ORDER BY n")
    assert cursor.fetchall() == rows


@pytest.fixture
def values_connection(postgres: Any) -> Any:
    dsn = new_schema(postgres)
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    run(dsn, f"CREATE TABLE everything (n int GENERATED ALWAYS AS IDENTITY, {columns})")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def test_values_pass_through_the_whole_sink(postgres: Any, tmp_path: Path) -> None:
    dsn = new_schema(postgres)
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    run(dsn, "SET TimeZone = 'Asia/Tokyo'", f"CREATE TABLE everything ({columns})")
    row = (
        "a\\b\tc\nd\re",
        -1,
        1e-300,
        Decimal("0.10"),
        True,
        bytes(range(256)),
        dt.date(2026, 2, 28),
        dt.time(23, 59, 59, 999999),
        dt.datetime(2026, 2, 28, 1, 2, 3),
        dt.datetime(2026, 2, 28, 1, 2, 3, tzinfo=dt.timezone(dt.timedelta(hours=9))),
        dt.timedelta(1, 2, 3),
        UUID(int=7),
        {"a": ["\\", None, {"b": "\u2028"}]},
        ['"', "\\", None, "{}"],
        [1, None],
        [b"\x00"],
        [{"a": 1}],
    )
    case = Case(sink_into(dsn, "everything").build(), list, record=lambda record: record)
    attempt = Attempt(case, tmp_path)
    nothing = tuple(itertools.repeat(None, len(row)))
    attempt.publish([row, nothing], [])  # type: ignore[list-item]
    attempt.commit(attempt.snapshot().committables)
    assert run(dsn, "SELECT * FROM everything ORDER BY an_int") == [row, nothing]
