"""Store entries of a state as Arrow tables: the rows of savepoints, and of state that is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.savepoint.layout import StateColumns
from penstock.state.key_groups import LONG_KEY, key_of
from penstock.state.window_encoding import length_of

ROWS_PER_GROUP = 1 << 16
BYTES_PER_GROUP = 1 << 25

_SHORT_STORE_KEY = 2 + 3 + LONG_KEY


def chunks(
    entries: Iterable[tuple[bytes, bytes]],
) -> Iterator[tuple[bytes, list[bytes], list[bytes]]]:
    """Split sorted entries into chunks of one table each: its prefix, keys and values."""
    prefix, size = b"", 0
    keys: list[bytes] = []
    values: list[bytes] = []
    for key, value in entries:
        if key[:2] != prefix or len(keys) == ROWS_PER_GROUP or size > BYTES_PER_GROUP:
            if keys:
                yield prefix, keys, values
            prefix, size, keys, values = key[:2], 0, [], []
        keys.append(key)
        values.append(value)
        size += len(value)
    if keys:
        yield prefix, keys, values


def table_of(
    schema: pa.Schema,
    columns: StateColumns,
    windows: str,
    keys: list[bytes],
    values: list[bytes],
) -> pa.Table:
    """Return the rows of entries of one table, at least one; `windows` is its window encoding."""
    groups = np.frombuffer(b"".join([key[2:4] for key in keys]), ">u2").astype(np.uint16)
    timestamps = None
    if columns.timestamps is not None:
        timestamps, values = columns.timestamps.to_arrow(values)
    encoded, found_windows, map_keys = split_keys(keys, windows, columns.map_key is not None)
    arrays = {
        "key_group": pa.array(groups),
        "key": columns.key.to_arrow(encoded),
        "value": columns.value.to_arrow(values),
        "key_bytes": encoded,
        "alive_since": timestamps,
    }
    if columns.window is not None:
        arrays |= {**columns.window.to_arrow(found_windows), "window_bytes": found_windows}
    if columns.map_key is not None:
        arrays |= {"map_key": columns.map_key.to_arrow(map_keys), "map_key_bytes": map_keys}
    return pa.Table.from_arrays([arrays[field.name] for field in schema], schema=schema)


def split_keys(
    keys: list[bytes], windows: str, with_map_keys: bool
) -> tuple[pa.BinaryArray, list[bytes], pa.BinaryArray | None]:
    """Split store keys into encoded keys, windows and map keys."""
    longest = len(max(keys, key=len))
    if not windows and not with_map_keys and longest < _SHORT_STORE_KEY:
        return pc.binary_slice(pa.array(keys, pa.binary()), 5, longest), [], None
    encoded = [key_of(key[2:]) for key in keys]
    starts = [len(key) + (5 if len(key) < LONG_KEY else 9) for key in encoded]
    found: list[bytes] = []
    if windows:
        stops = [s + length_of(windows, k, s) for k, s in zip(keys, starts, strict=True)]
        found = [k[start:stop] for k, start, stop in zip(keys, starts, stops, strict=True)]
        starts = stops
    map_keys = None
    if with_map_keys:
        rest = [key[start:] for key, start in zip(keys, starts, strict=True)]
        map_keys = pa.array(rest, pa.binary())
    return pa.array(encoded, pa.binary()), found, map_keys
