"""Changes of a state as rows of JSON: kind of change, key, and the value before and after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.savepoint.tables import table_of
from penstock.snapshots.differences import Change, StatePair
from penstock.snapshots.json_values import json_rows
from penstock.snapshots.keyed_state import KeyedState

_VALUE, _ALIVE = "value", "alive_since"
_STORED = ("key_bytes", "map_key_bytes", "window_bytes")


def change_rows(pair: StatePair, changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Return changes of a state as JSON has them.

    A row has `change`, `key_group`, the columns of the key, and `before` and `after`, each if there
    is such a value; in a state with a time-to-live also `alive_since_before` and
    `alive_since_after`.
    """
    listed = list(changes)
    before = _rows(pair.before, ((c.key, c.before) for c in listed))
    after = _rows(pair.after, ((c.key, c.after) for c in listed))
    return [_row(c.kind, old, new) for c, old, new in zip(listed, before, after, strict=True)]


def _row(kind: str, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    row = {"change": kind}
    row |= {
        name: value
        for name, value in (after or before).items()
        if name not in (_VALUE, _ALIVE, *_STORED)
    }
    for name, column in (("{}", _VALUE), ("alive_since_{}", _ALIVE)):
        if column in before:
            row[name.format("before")] = before[column]
        if column in after:
            row[name.format("after")] = after[column]
    return row


def _rows(
    state: KeyedState | None, entries: Iterable[tuple[bytes, bytes | None]]
) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of entries; over empty ones for those without a value."""
    listed = list(entries)
    present = [(key, value) for key, value in listed if value is not None]
    rows: Iterator[dict[str, Any]] = iter(())
    if present and state is not None:
        keys, values = [key for key, _ in present], [value for _, value in present]
        rows = iter(
            json_rows(table_of(state.schema, state.columns, state.info.windows, keys, values))
        )
    for _, value in listed:
        yield {} if value is None else next(rows)
