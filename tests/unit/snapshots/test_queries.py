"""Queries answer the same as tables, entry by entry."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.errors import (
    BadCursorError,
    KeyNotOfTypeError,
    StateNotQueryableError,
    UnknownStateError,
)
from penstock.snapshots.look_up import Cursor
from penstock.snapshots.queries.entry_reader import EntryReader
from penstock.snapshots.queries.operator_queries import OperatorQueries
from penstock.snapshots.queries.query import StateQuery
from penstock.snapshots.stored_snapshot import StoredSnapshot
from tests.unit.snapshots.json_rows import json_rows, page_of
from tests.unit.snapshots.test_reading import BOOK, opened, snapshot

NAMES = {"key", "map_key", "value", "window_start", "window_end", "window", "time"}


@pytest.fixture(params=["hashmap", "rocksdb", "memory", "savepoint"])
def stored(request: pytest.FixtureRequest) -> StoredSnapshot:
    return snapshot(request.param)


def query(state: str, *keys: str, **more: Any) -> StateQuery:
    return StateQuery(BOOK, state, list(keys), only_queryable=False, **more)


def as_entry(row: dict[str, Any], are_timers: bool) -> dict[str, Any]:
    if are_timers:
        return {"key": row["map_key"], "time": row["key"]}
    return {name: row[name] for name in row if name in NAMES}


def test_entries_are_the_rows_of_tables_in_every_state(stored: StoredSnapshot) -> None:
    for operator in stored.keyed_operators:
        with opened(stored, operator.uid) as (found, names):
            for state in names:
                rows = json_rows(page_of(found, state, 10_000).rows)
                reader = EntryReader(state)
                entries = [reader.read(entry) for entry in found.scan(state)]
                without = [{n: e[n] for n in e if n != "expires"} for e in entries]
                assert without == [as_entry(row, state.are_timers) for row in rows]


def test_pages_of_a_scan_have_every_entry_once(stored: StoredSnapshot) -> None:
    with opened(stored) as (found, names):
        queries = OperatorQueries(found, names, BOOK)
        for state in names:
            whole = queries.answer(query(state.name, limit=1000), 0.0).entries
            assert whole
            seen, cursor = [], None
            while True:
                page = queries.answer(query(state.name, limit=2, after=cursor), 0.0)
                assert page.entries is not None
                seen += page.entries
                cursor = page.next
                if cursor is None:
                    break
            assert seen == whole


def test_a_look_up_has_one_result_per_key_in_their_order(stored: StoredSnapshot) -> None:
    with opened(stored) as (found, names):
        queries = OperatorQueries(found, names, BOOK)
        answer = queries.answer(query("count", "3", "99", "1"), 0.0)
        assert answer.keys is not None
        assert [k.key for k in answer.keys] == [3, 99, 1]
        assert [len(k.entries) for k in answer.keys] == [1, 0, 1]
        exact = queries.answer(query("count", "3", are_json=True), 0.0)
        assert exact.keys == answer.keys[:1]


def test_a_map_key_selects_one_entry_and_large_maps_have_pages(stored: StoredSnapshot) -> None:
    with opened(stored) as (found, names):
        queries = OperatorQueries(found, names, BOOK)
        whole = queries.answer(query("seen", "3"), 0.0).keys
        assert whole is not None
        assert [e["map_key"] for e in whole[0].entries] == ["even", "odd"]
        odd = queries.answer(query("seen", "3", map_key="odd"), 0.0).keys
        assert odd is not None
        assert odd[0].entries == whole[0].entries[1:]
        first = queries.answer(query("seen", "3", limit=1), 0.0).keys
        assert first is not None
        rest = queries.answer(query("seen", "3", after=first[0].next), 0.0).keys
        assert rest is not None
        assert first[0].entries + rest[0].entries == whole[0].entries
        with pytest.raises(KeyNotOfTypeError, match="only map states have map keys"):
            queries.answer(query("count", "3", map_key="odd"), 0.0)


def test_a_state_that_is_not_queryable_is_refused(stored: StoredSnapshot) -> None:
    with opened(stored) as (found, names):
        queries = OperatorQueries(found, names, BOOK)
        with pytest.raises(StateNotQueryableError, match="set_queryable"):
            queries.answer(StateQuery(BOOK, "count", ["3"]), 0.0)
        with pytest.raises(UnknownStateError):
            queries.answer(StateQuery(BOOK, "counts", ["3"]), 0.0)


@pytest.mark.parametrize(
    "key", ["three", "[3]", '{"a": 1}', "1e400", "9" * 30, "", "nul\0", "[" * 2000]
)
def test_a_malformed_key_is_refused(key: str) -> None:
    with opened(snapshot("hashmap")) as (found, names):
        queries = OperatorQueries(found, names, BOOK)
        for are_json in (False, True):
            with pytest.raises(KeyNotOfTypeError):
                queries.answer(query("count", key, are_json=are_json), 0.0)


def test_a_cursor_of_no_answer_is_refused() -> None:
    with opened(snapshot("hashmap")) as (found, names):
        queries = OperatorQueries(found, names, BOOK)
        for cursor in ("", "x", "é", "AA"):
            with pytest.raises(BadCursorError):
                queries.answer(query("count", after=cursor), 0.0)
        # A forged one leads nowhere, and to nothing else.
        forged = Cursor(b"\xff" * 40).encode()
        assert queries.answer(query("count", after=forged), 0.0).entries == []


def test_an_answer_survives_the_way_to_another_process(stored: StoredSnapshot) -> None:
    with opened(stored) as (found, names):
        queries = OperatorQueries(found, names, BOOK)
        for state in names:
            answer = queries.answer(query(state.name, "3"), 0.0)
            data = msgspec.json.encode(answer)
            assert msgspec.json.decode(data, type=type(answer)) == answer
