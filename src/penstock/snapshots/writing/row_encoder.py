"""Rows of a table as entries of a state: the stored key, and the value as a savepoint has it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import MapTypeInfo, TypeInformation
from penstock.errors.base import short_repr
from penstock.savepoint.key_columns import key_column
from penstock.snapshots.writing.bad_values import NOT_OF_TYPE, BadValue
from penstock.snapshots.writing.columns.key_bytes import (
    KeyEncoder,
    groups_of,
    key_type_of,
    routed,
)
from penstock.snapshots.writing.columns.last_accesses import with_last_accesses
from penstock.snapshots.writing.columns.value_columns import ValueEncoder, value_type
from penstock.snapshots.writing.columns.wrapped_columns import unwrapped
from penstock.snapshots.writing.targets import (
    ALIVE_SINCE,
    ENCODED_KEY,
    END,
    KEY,
    MAP_KEY,
    NAMESPACE,
    START,
    TIME_OF_TIMER,
    VALUE,
    WINDOW,
    StateTarget,
)
from penstock.state.registry.meta_info import MAP_STATE, TIMERS
from penstock.state.ttl.timestamps import add_timestamps
from penstock.state.window_encoding import COUNT, GLOBAL, TIME
from penstock.types.signature import parse_signature, type_signature

_BIAS = np.uint64(1 << 63)
_NULL = "it is null"
_OTHER_KEY = (
    "it is not the key in 'key_bytes', which is the one that is written: to give keys another type "
    "or value use change_key"
)


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that keeps a savepoint from being written, by name."""

    operator: str
    reason: str
    state: str = ""
    column: str = ""
    key: str = ""
    value: str = ""

    def __str__(self) -> str:
        places = [f"operator {self.operator!r}"] if self.operator else []
        places += [f"state {self.state!r}"] if self.state else []
        places += [f"column {self.column!r}"] if self.column else []
        places += [f"key {self.key}"] if self.key else []
        what = f"{self.value}: {self.reason}" if self.value else self.reason
        return f"{', '.join(places)}: {what}" if places else what


@dataclass(frozen=True, slots=True)
class Encoded:
    """The entries of a batch of rows; rows with a problem have none."""

    groups: npt.NDArray[np.int64]
    """Their key groups."""
    keys: pa.BinaryArray
    """As a store has them, without the number of the table."""
    values: pa.Array
    problems: list[Problem]


class RowEncoder:
    """Encodes the rows for one state."""

    def __init__(self, target: StateTarget, columns: Mapping[str, str]) -> None:
        info = target.info
        self._target = target
        self._columns = columns
        self._types: dict[str, TypeInformation] = {KEY: key_type_of(target.operator.key_type)}
        self._keys = KeyEncoder(target.operator.key_type)
        self._map_keys: KeyEncoder | None = None
        if info.kind == MAP_STATE:
            type_info = parse_signature(info.type)
            assert isinstance(type_info, MapTypeInfo)
            self._map_keys = KeyEncoder(type_signature(type_info.key))
            self._types[MAP_KEY] = type_info.key
        if info.kind != TIMERS:
            self._types[VALUE] = value_type(info)
        self._values = None if info.kind == TIMERS else ValueEncoder(info)
        self.arrow = value_type_in_transit(target)
        """The type of the values."""
        self._are_stored = are_stored(target)

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        """Return the entries of rows."""
        target, info = self._target, self._target.info
        bad: dict[str, list[BadValue]] = {}
        encoded = self._key_bytes(batch, bad)
        groups = groups_of(encoded, target.operator.max_parallelism)
        stored = routed(encoded, groups)
        windows = self._windows(batch, bad)
        values: pa.Array
        if info.kind == TIMERS:
            stored = self._timers(batch, stored, windows, bad)
            values = pa.array([b""] * len(encoded), pa.binary())
        else:
            if windows is not None:
                stored = _joined(stored, windows)
            if self._map_keys is not None:
                codes, bad[MAP_KEY] = self._map_keys.encode(self._column(batch, MAP_KEY))
                stored = _joined(stored, codes)
            values = self._value_column(batch, bad)
        refused = sorted({one.row for found in bad.values() for one in found})
        if not refused:
            return Encoded(groups, stored, values, [])
        problems = [self._problem(batch, role, one) for role, found in bad.items() for one in found]
        kept = np.ones(len(groups), bool)
        kept[refused] = False
        mask = pa.array(kept)
        return Encoded(groups[kept], stored.filter(mask), values.filter(mask), problems)

    def _key_bytes(self, batch: pa.RecordBatch, bad: dict[str, list[BadValue]]) -> pa.BinaryArray:
        if ENCODED_KEY not in self._columns:
            encoded, bad[KEY] = self._keys.encode(self._column(batch, KEY))
            return encoded
        column = self._column(batch, ENCODED_KEY)
        encoded = column.cast(pa.binary())
        nulls = _nulls(encoded)
        bad[ENCODED_KEY] = [BadValue(row, _NULL) for row in nulls]
        if KEY in self._columns and not nulls:
            bad[KEY] = [BadValue(row, _OTHER_KEY) for row in self._other_keys(batch, encoded)]
        return encoded.fill_null(b"")

    def _other_keys(self, batch: pa.RecordBatch, encoded: pa.BinaryArray) -> list[int]:
        """Return the rows whose key is not the stored one: a change that would have no effect."""
        try:
            texts = self._column(batch, KEY).cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return list(range(batch.num_rows))
        shown = key_column(self._target.operator.key_type).to_arrow(encoded)
        same = pc.fill_null(pc.equal(texts, shown), False)
        rows: list[int] = np.flatnonzero(~same.to_numpy(zero_copy_only=False)).tolist()
        return rows

    def _windows(
        self, batch: pa.RecordBatch, bad: dict[str, list[BadValue]]
    ) -> pa.BinaryArray | None:
        """Return what follows the keys for their windows, None if there is nothing."""
        windows = self._target.info.windows
        columns = self._columns
        if NAMESPACE in columns:
            return self._column(batch, NAMESPACE).cast(pa.binary()).fill_null(b"")
        if windows == TIME or (START in columns and END in columns):
            return _joined(self._number(batch, START, bad), self._number(batch, END, bad))
        if windows == COUNT or WINDOW in columns:
            return self._number(batch, WINDOW, bad)
        if windows == GLOBAL:
            return pa.array([b"\0"] * batch.num_rows, pa.binary())
        return None

    def _number(
        self, batch: pa.RecordBatch, role: str, bad: dict[str, list[BadValue]]
    ) -> pa.BinaryArray:
        """Return a column of numbers, usually times in milliseconds, as sortable bytes."""
        column = self._column(batch, role)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        if not pa.types.is_signed_integer(column.type):
            reason = "it is no number of milliseconds"
            bad[role] = [BadValue(row, reason) for row in range(len(column))]
            column = pa.array(np.zeros(len(column), np.int64))
        elif column.null_count:
            bad[role] = [BadValue(row, _NULL) for row in _nulls(column)]
            column = column.fill_null(0)
        numbers = column.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64) ^ _BIAS
        data = pa.py_buffer(numbers.astype(">u8").tobytes())
        fixed = pa.Array.from_buffers(pa.binary(8), len(numbers), [None, data])
        return fixed.cast(pa.binary())

    def _timers(
        self,
        batch: pa.RecordBatch,
        stored: pa.BinaryArray,
        windows: pa.BinaryArray | None,
        bad: dict[str, list[BadValue]],
    ) -> pa.BinaryArray:
        """Return the entries of timers: the time is between key group and key."""
        times = self._number(batch, TIME_OF_TIMER, bad)
        longest = pc.max(pc.binary_length(stored)).as_py() or 2
        group, rest = pc.binary_slice(stored, 0, 2), pc.binary_slice(stored, 2, longest)
        entries = pc.binary_join_element_wise(group, pa.scalar(b"\x08"), times, rest, b"")
        return entries if windows is None else _joined(entries, windows)

    def _value_column(self, batch: pa.RecordBatch, bad: dict[str, list[BadValue]]) -> pa.Array:
        assert self._values is not None
        column = self._column(batch, VALUE)
        if not self._are_stored:
            values, bad[VALUE] = self._values.encode(column)
            return values
        bodies, bad[VALUE] = self._values.stored(column)
        kind, now = self._target.info.kind, int(time.time() * 1000)
        if ALIVE_SINCE in self._columns:
            since = self._column(batch, ALIVE_SINCE)
            stored, bad[ALIVE_SINCE] = with_last_accesses(bodies, since, kind, now)
        else:
            stored = [b"" if b is None else add_timestamps(b, kind, now) for b in bodies]
        return pa.array(stored, pa.binary())

    def _column(self, batch: pa.RecordBatch, role: str) -> pa.Array:
        column = batch.column(self._columns[role])
        type_info = self._types.get(role)
        return column if type_info is None else unwrapped(column, type_info)

    def _problem(self, batch: pa.RecordBatch, role: str, bad: BadValue) -> Problem:
        target, name = self._target, self._columns[role]
        key = "" if KEY not in self._columns else _shown(self._column(batch, KEY), bad.row)
        column = self._column(batch, role)
        value = column[bad.row]
        reason = bad.reason
        if role in (KEY, MAP_KEY, VALUE) and value.is_valid and reason == NOT_OF_TYPE:
            reason = f"it is not of the type {self._declared(role)}"
        return Problem(
            target.operator.uid,
            reason,
            target.state,
            name,
            key,
            "" if role == KEY else _shown(column, bad.row),
        )

    def _declared(self, role: str) -> str:
        info = self._target.info
        if role == KEY:
            return self._target.operator.key_type
        if info.kind != MAP_STATE:
            return info.type
        type_info = parse_signature(info.type)
        assert isinstance(type_info, MapTypeInfo)
        return type_signature(type_info.key if role == MAP_KEY else type_info.value)


def are_stored(target: StateTarget) -> bool:
    """Whether values are stored bytes between encoding and writing."""
    return target.info.kind == TIMERS or target.info.ttl is not None


def value_type_in_transit(target: StateTarget) -> pa.DataType:
    """Return the type of the values between encoding and writing."""
    return pa.binary() if are_stored(target) else ValueEncoder(target.info).arrow


def _joined(first: pa.BinaryArray, second: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_join_element_wise(first, second, b"")


def _nulls(column: pa.Array) -> list[int]:
    rows: list[int] = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist()
    return rows


def _shown(column: pa.Array, row: int) -> str:
    return str(short_repr(column[row].as_py()))
