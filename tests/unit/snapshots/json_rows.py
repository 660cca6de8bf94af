"""Rows of states as JSON has them, made of whole tables: what look-ups are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from penstock.savepoint.tables import chunks, table_of
from penstock.snapshots.json_values import encoded_key, json_values
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.look_up import Cursor, Entry, OpenOperator


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    columns = {name: json_values(table.column(name)) for name in table.column_names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@dataclass(frozen=True)
class Page:
    """Rows in the order of key groups and stored keys, and where to continue."""

    rows: pa.Table
    next: Cursor | None


def rows_of_key(operator: OpenOperator, state: KeyedState, key: Any) -> pa.Table:
    return _rows(state, operator.find(state, encoded_key(state.key_codec, key)))


def page_of(
    operator: OpenOperator, state: KeyedState, limit: int, after: Cursor | None = None
) -> Page:
    entries = list(islice(operator.scan(state, after), limit + 1))
    cursor = Cursor(entries[limit - 1][0][2:]) if len(entries) > limit else None
    return Page(_rows(state, iter(entries[:limit])), cursor)


def _rows(state: KeyedState, entries: Iterator[Entry]) -> pa.Table:
    found = [
        table_of(state.schema, state.columns, state.info.windows, keys, values)
        for _, keys, values in chunks(entries)
    ]
    return pa.concat_tables(found) if found else state.schema.empty_table()
