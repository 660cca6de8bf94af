"""The layout of a savepoint: file names, columns and file properties.

    <savepoint>/_metadata
    <savepoint>/<operator>/<state>/part-<subtask>.parquet

While a savepoint is being written its file names begin with a dot, which readers of directories
ignore, and contain the name of the task attempt. In a store, which cannot rename files, their names
contain it from beginning to end:

    <savepoint>/<operator>/<state>/part-<subtask>-<task attempt>.parquet
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import pyarrow as pa

from penstock.common.typeinfo import MapTypeInfo
from penstock.ids import OperatorUid
from penstock.savepoint.columns import Column, TimestampColumn, timestamp_column, value_column
from penstock.savepoint.key_columns import (
    KeyColumn,
    WindowColumns,
    key_column,
    time_column,
    timer_key_column,
    window_columns,
)
from penstock.state.registry.meta_info import MAP_STATE, TIMERS, StateMetaInfo
from penstock.task.layout import file_name
from penstock.types.signature import parse_signature, type_signature

METADATA = "_metadata"
FORMAT = 1

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class SavedOperator:
    """The operator whose state is written."""

    uid: str
    key_type: str
    max_parallelism: int


@dataclass(frozen=True, slots=True)
class StateColumns:
    """The columns of one state."""

    key: KeyColumn
    window: WindowColumns | None
    map_key: KeyColumn | None
    value: Column
    timestamps: TimestampColumn | None
    """Of a state with a time-to-live."""

    @property
    def fields(self) -> list[pa.Field]:
        """The columns in their order."""
        readable = [pa.field("key", self.key.arrow)]
        encoded = [pa.field("key_bytes", pa.binary(), nullable=False)]
        if self.window is not None:
            readable += self.window.fields
            encoded.append(pa.field("window_bytes", pa.binary(), nullable=False))
        if self.map_key is not None:
            readable.append(pa.field("map_key", self.map_key.arrow))
            encoded.append(pa.field("map_key_bytes", pa.binary(), nullable=False))
        return [
            pa.field("key_group", pa.uint16(), nullable=False),
            *readable,
            pa.field("value", self.value.arrow),
            *([] if self.timestamps is None else [pa.field("alive_since", self.timestamps.arrow)]),
            *encoded,
        ]


def columns_for(info: StateMetaInfo, key_type: str) -> StateColumns:
    """Return the columns of a state."""
    value = value_column(info.kind, info.type)
    if info.kind == TIMERS:
        return StateColumns(time_column(), None, timer_key_column(key_type), value, None)
    map_key = None
    if info.kind == MAP_STATE:
        type_info = parse_signature(info.type)
        assert isinstance(type_info, MapTypeInfo)
        map_key = key_column(type_signature(type_info.key))
    window = window_columns(info.windows) if info.windows else None
    timestamps = None if info.ttl is None else timestamp_column(info.kind)
    return StateColumns(key_column(key_type), window, map_key, value, timestamps)


def properties_of(
    operator: SavedOperator, state: str, info: StateMetaInfo, subtask: int
) -> dict[str, str]:
    """Return the properties of a file, which make it self-describing."""
    ttl = {} if info.ttl is None else {"penstock.ttl_ms": str(info.ttl.millis)}
    per_window = {"penstock.windows": info.windows} if info.windows else {}
    return {
        "penstock.format": str(FORMAT),
        "penstock.uid": operator.uid,
        "penstock.state": state,
        "penstock.kind": info.kind,
        "penstock.type": info.type,
        "penstock.key_type": operator.key_type,
        "penstock.max_parallelism": str(operator.max_parallelism),
        "penstock.subtask": str(subtask),
        **per_window,
        **ttl,
    }


def operator_dir(uid: str) -> str:
    """Return the name of an operator's directory."""
    return file_name(OperatorUid(uid))


def state_dir(state: str) -> str:
    """Return the name of a state's directory; a state's name may be any text."""
    if _PLAIN.fullmatch(state):
        return state
    return f"state-{hashlib.blake2b(state.encode(), digest_size=16).hexdigest()}"


def part_name(subtask: int) -> str:
    """Return the name of a subtask's file."""
    return f"part-{subtask}.parquet"


def staged_name(subtask: int, name: str) -> str:
    """Return the name of a subtask's file until the savepoint is complete."""
    return f".part-{subtask}-{name}.parquet"


def stored_name(subtask: int, name: str) -> str:
    """Return the name of a subtask's file in a store, where it is never renamed."""
    return f"part-{subtask}-{name}.parquet"
