"""Changes of a state as rows of JSON: kind of change, key, and the value before and after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.snapshots.differences import Change, StatePair
from penstock.snapshots.queries.entry_reader import EntryReader

_SIDES = ("value", "expires")


def change_rows(pair: StatePair, changes: Iterable[Change]) -> list[dict[str, Any]]:
    """Return changes of a state as JSON has them.

    A row has `change`, what makes up the key as look-ups return it, and `before` and `after`, each
    if there is such a value; in a state with a time-to-live also `expires_before` and
    `expires_after`.
    """
    before = None if pair.before is None else EntryReader(pair.before)
    after = None if pair.after is None else EntryReader(pair.after)
    return [_row(change, before, after) for change in changes]


def _row(change: Change, before: EntryReader | None, after: EntryReader | None) -> dict[str, Any]:
    old = _read(before, change.key, change.before)
    new = _read(after, change.key, change.after)
    row: dict[str, Any] = {"change": change.kind}
    row |= {name: value for name, value in (new or old).items() if name not in _SIDES}
    for found, side in ((old, "before"), (new, "after")):
        if "value" in found:
            row[side] = found["value"]
        if "expires" in found:
            row[f"expires_{side}"] = found["expires"]
    return row


def _read(reader: EntryReader | None, key: bytes, value: bytes | None) -> dict[str, Any]:
    return {} if reader is None or value is None else reader.read((key, value))
