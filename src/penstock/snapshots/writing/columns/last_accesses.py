"""When values of a state with a time-to-live were last written, as a column of rows says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.snapshots.writing.bad_values import BadValue
from penstock.state.ttl.timestamps import count_of, with_timestamps

_NO_ZONE = "it has no time zone"
_NO_TIME = "it is no time"


def with_last_accesses(
    bodies: Sequence[bytes | None], column: pa.Array, kind: str, now: int
) -> tuple[list[bytes], list[BadValue]]:
    """Return the stored bytes of values and their times, and the rows with bad times.

    Null stands for now; one time is that of all elements of a list. A body that is None was refused
    before; it and what is refused here are empty in the result.
    """
    stored: list[bytes] = []
    bad: list[BadValue] = []
    reason = _why_refused(column.type)
    times = [None] * len(column) if reason else _millis(column)
    for row, (body, given) in enumerate(zip(bodies, times, strict=True)):
        data, count = b"", 0 if body is None else count_of(body, kind)
        each = given if isinstance(given, list) else [given] * count
        if reason and column[row].is_valid:
            bad.append(BadValue(row, reason))
        elif body is not None and len(each) != count:
            bad.append(BadValue(row, f"it has {_number(len(each), 'time')} for {_values(count)}"))
        elif body is not None:
            data = with_timestamps([now if one is None else one for one in each], body, kind)
        stored.append(data)
    return stored, bad


def _why_refused(arrow: pa.DataType) -> str:
    """Return why a column of a type has no times, nothing if it has some."""
    if pa.types.is_list(arrow):
        arrow = arrow.value_type
    if pa.types.is_timestamp(arrow):
        return "" if arrow.tz is not None else _NO_ZONE
    return "" if pa.types.is_signed_integer(arrow) or pa.types.is_null(arrow) else _NO_TIME


def _millis(column: pa.Array) -> list[Any]:
    """Return times in milliseconds, or lists of them."""
    arrow = column.type
    of_list = pa.types.is_list(arrow)
    one = arrow.value_type if of_list else arrow
    if pa.types.is_timestamp(one):
        millis = pa.timestamp("ms", one.tz)
        column = column.cast(pa.list_(millis) if of_list else millis, safe=False)
        column = column.cast(pa.list_(pa.int64()) if of_list else pa.int64())
    found: list[Any] = column.to_pylist()
    return found


def _values(count: int) -> str:
    return _number(count, "value")


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
