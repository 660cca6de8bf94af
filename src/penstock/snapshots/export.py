"""Rows of a state for files that other programs read: readable columns, and cells for CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.common.text.tolerant_json import encode_json
from penstock.snapshots.json_values import BASE64, json_values
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.stored_snapshot import StoredSnapshot, opened_part

STORED_KEYS = ("key_bytes", "window_bytes", "map_key_bytes")


def exported_schema(state: KeyedState, *, with_stored_keys: bool = False) -> pa.Schema:
    """Return the columns of a state: those of savepoints, the stored keys only if wanted."""
    return pa.schema([f for f in state.schema if with_stored_keys or f.name not in STORED_KEYS])


def exported_tables(
    snapshot: StoredSnapshot,
    state: KeyedState,
    schema: pa.Schema,
    on_part: Callable[[str], None] = lambda _: None,
) -> Iterator[pa.Table]:
    """Iterate over all rows of a state, ordered by key group, a part after the other.

    Raises:
        CorruptStateError: a file is missing, damaged or another one.
    """
    parts = snapshot.parts(snapshot.operator(state.uid))
    for part in parts:
        on_part(f"{state.name}, subtask {part.subtask + 1} of {len(parts)}")
        with opened_part(part) as opened:
            for table in opened.tables(state, b"", None):
                yield table.select(schema.names)


def csv_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns as CSV has them: numbers, truth values and texts."""
    return pa.schema(
        [pa.field(f.name, f.type if _is_plain(f.type) else pa.string()) for f in schema]
    )


def csv_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows for CSV: what is no number, truth value or text becomes its JSON.

    Bytes become their base64, times ISO texts.
    """
    arrays = [
        column if _is_plain(column.type) else pa.chunked_array([_cells(column)], pa.string())
        for column in table.columns
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _cells(column: pa.ChunkedArray) -> pa.Array:
    values = json_values(column)
    if pa.types.is_binary(column.type):
        values = [None if value is None else value[BASE64] for value in values]
    return pa.array(map(_cell, values), pa.string())


def _cell(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return encode_json(value).decode()


def _is_plain(arrow: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(arrow)
        or pa.types.is_floating(arrow)
        or pa.types.is_boolean(arrow)
        or pa.types.is_string(arrow)
    )
