"""The times that keep expiring values alive, as an Arrow column of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.state.stamps import split_stamps, stamped
from penstock.state.table import LIST_STATE

__all__ = ["StampColumn", "stamp_column"]

_INSTANT = pa.timestamp("ms", "UTC")


@dataclass(frozen=True, slots=True)
class StampColumn:
    """How the stamps of one state lie in Arrow, beside what they are for."""

    arrow: pa.DataType
    fill: Callable[[Sequence[bytes]], tuple[pa.Array, list[bytes]]]
    """Takes stored bytes apart, into a column of stamps and what follows them."""
    drain: Callable[[pa.Array, Sequence[bytes]], list[bytes]]
    """Puts them together again."""


def stamp_column(kind: str) -> StampColumn:
    """Return the column for a kind of state."""
    is_list = kind == LIST_STATE

    def fill(values: Sequence[bytes]) -> tuple[pa.Array, list[bytes]]:
        parts = [split_stamps(value, kind) for value in values]
        flat = [stamp for stamps, _ in parts for stamp in stamps]
        column = pa.array(flat, pa.int64()).cast(_INSTANT)
        if is_list:
            offsets = np.zeros(len(parts) + 1, np.int32)
            np.cumsum([len(stamps) for stamps, _ in parts], out=offsets[1:])
            column = pa.ListArray.from_arrays(pa.array(offsets), column)
        return column, [body for _, body in parts]

    def drain(column: pa.Array, bodies: Sequence[bytes]) -> list[bytes]:
        numbers = column.cast(pa.list_(pa.int64()) if is_list else pa.int64()).to_pylist()
        each = numbers if is_list else [[number] for number in numbers]
        return [stamped(stamps, body, kind) for stamps, body in zip(each, bodies, strict=True)]

    return StampColumn(pa.list_(_INSTANT) if is_list else _INSTANT, fill, drain)
