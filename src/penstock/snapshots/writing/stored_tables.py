"""Sorted entries as the tables that a savepoint has, with duplicate keys found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors.base import short_repr
from penstock.savepoint.layout import columns_for
from penstock.savepoint.tables import BYTES_PER_GROUP, ROWS_PER_GROUP, split_keys
from penstock.snapshots.writing.row_encoder import Problem, are_stored
from penstock.snapshots.writing.targets import StateTarget
from penstock.state.key_groups import LONG_KEY, key_of
from penstock.state.keyed.timers import time_of
from penstock.state.keys import decode_key
from penstock.state.registry.meta_info import TIMERS
from penstock.types.signature import PICKLED

_NO_TABLE = b"\0\0"
_SHORT = 3 + LONG_KEY
_KEY_OF_TIMER_AT = 11
MOST_PROBLEMS = 20


class TableWriter:
    """Makes the tables of one subtask of a state from batches of entries in their order."""

    def __init__(self, target: StateTarget, *, stored: bool | None = None) -> None:
        """`stored` says that values are stored bytes; by default as `RowEncoder` makes them."""
        self._target = target
        self._columns = columns_for(target.info, target.operator.key_type or PICKLED)
        self._schema = pa.schema(self._columns.fields)
        self._stored = are_stored(target) if stored is None else stored
        self._last: bytes | None = None
        self.problems: list[Problem] = []
        self.rows = 0
        self.first_time: int | None = None
        """Of timers: the earliest time."""

    def tables(self, batches: Iterable[tuple[pa.BinaryArray, pa.Array]]) -> Iterator[pa.Table]:
        """Iterate over the tables; duplicate timers are one, other duplicates are problems."""
        for keys, values in _row_groups(batches):
            keys, values = self._without_duplicates(keys, values)
            for start in range(0, len(keys), ROWS_PER_GROUP):
                part = keys.slice(start, ROWS_PER_GROUP)
                self.rows += len(part)
                yield self._table(part, values.slice(start, ROWS_PER_GROUP))

    def check(self, batches: Iterable[tuple[pa.BinaryArray, pa.Array]]) -> None:
        """Look for duplicates only."""
        for keys, values in batches:
            self.rows += len(self._without_duplicates(keys, values)[0])

    def _without_duplicates(
        self, keys: pa.BinaryArray, values: pa.Array
    ) -> tuple[pa.BinaryArray, pa.Array]:
        if not len(keys):
            return keys, values
        same = np.zeros(len(keys), bool)
        same[0] = keys[0].as_py() == self._last
        same[1:] = pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(
            zero_copy_only=False
        )
        self._last = keys[-1].as_py()
        if self._target.info.kind == TIMERS:
            times = [time_of(key) for key in keys.to_pylist()]
            known = [] if self.first_time is None else [self.first_time]
            self.first_time = min([*times, *known])
        if not same.any():
            return keys, values
        if self._target.info.kind != TIMERS:
            for row in np.flatnonzero(same)[: MOST_PROBLEMS - len(self.problems)].tolist():
                self.problems.append(self._duplicate(keys[row].as_py()))
        mask = pa.array(~same)
        return keys.filter(mask), values.filter(mask)

    def _duplicate(self, stored: bytes) -> Problem:
        key = short_repr(decode_key(key_of(stored)))
        part = ""
        if self._columns.map_key is not None or self._columns.window is not None:
            part = " with the same map key or window"
        reason = f"several rows have this key{part}"
        return Problem(self._target.operator.uid, reason, self._target.state, key=str(key))

    def _table(self, keys: pa.BinaryArray, values: pa.Array) -> pa.Table:
        columns, info = self._columns, self._target.info
        arrays: dict[str, pa.Array | list[bytes] | None] = {}
        if self._stored:
            bodies = values.to_pylist()
            if columns.timestamps is not None:
                arrays["alive_since"], bodies = columns.timestamps.to_arrow(bodies)
            values = columns.value.to_arrow(bodies)
        arrays["value"] = values
        groups = pc.binary_slice(keys, 0, 2).cast(pa.binary(2))
        numbers = np.frombuffer(groups.buffers()[1], ">u2", len(keys), groups.offset * 2)
        arrays["key_group"] = pa.array(numbers.astype(np.uint16))
        is_simple = columns.window is None and columns.map_key is None
        longest = pc.max(pc.binary_length(keys)).as_py()
        if is_simple and longest < _SHORT:
            encoded = pc.binary_slice(keys, 3, longest)
        else:
            whole = [_NO_TABLE + key for key in keys.to_pylist()]
            encoded, windows, map_keys = split_keys(
                whole, info.windows, columns.map_key is not None
            )
            if columns.window is not None:
                arrays |= {**columns.window.to_arrow(windows), "window_bytes": windows}
            if columns.map_key is not None:
                assert map_keys is not None
                arrays["map_key"] = columns.map_key.to_arrow(map_keys)
                arrays["map_key_bytes"] = map_keys
        arrays["key"], arrays["key_bytes"] = columns.key.to_arrow(encoded), encoded
        return pa.Table.from_arrays(
            [arrays[field.name] for field in self._schema], schema=self._schema
        )


def _row_groups(
    batches: Iterable[tuple[pa.BinaryArray, pa.Array]],
) -> Iterator[tuple[pa.BinaryArray, pa.Array]]:
    """Join small batches."""
    keys: list[pa.BinaryArray] = []
    values: list[pa.Array] = []
    rows = size = 0
    for some_keys, some_values in batches:
        keys.append(some_keys)
        values.append(some_values)
        rows += len(some_keys)
        size += some_values.nbytes
        if rows >= ROWS_PER_GROUP or size >= BYTES_PER_GROUP:
            yield pa.concat_arrays(keys), pa.concat_arrays(values)
            keys, values, rows, size = [], [], 0, 0
    if keys:
        yield pa.concat_arrays(keys), pa.concat_arrays(values)


def key_of_timer(entry: bytes) -> bytes:
    """Return the encoded key of a stored timer."""
    return key_of(entry[:2] + entry[_KEY_OF_TIMER_AT:])
