"""What a savepoint is written from: DataFrames with the state that they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from penstock.snapshots.writing.columns.wrapped_columns import unwrapped
from penstock.snapshots.writing.targets import TIMERS_INFO, info_of
from penstock.state.operator.states import RedistributionMode
from penstock.state.registry.meta_info import LIST_STATE, MAP_STATE, StateMetaInfo
from penstock.state.window_encoding import COUNT, GLOBAL, TIME
from penstock.task.time.timer_service import EVENT_TIMERS, PROCESSING_TIMERS

_LIST_COLUMNS = ("list_value", "value")
_KEY_COLUMNS = ("key", "key_bytes", "window_start", "window_end", "window")
_POSITION = "list_position"
_ELEMENT = "list_element"
_WHOLE_MAP = "map_value"
_SINCE = "alive_since"


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """The rows of a keyed state, or of the timers of a time domain."""

    name: str
    info: StateMetaInfo
    frame: DataFrame


@dataclass(frozen=True, slots=True)
class OperatorRows:
    """The rows of a list or broadcast map of operator state; they are collected by the driver."""

    descriptor: StateDescriptor
    distribution: RedistributionMode
    rows: DataFrame | Iterable[Any]


StateRows = KeyedRows | OperatorRows


def keyed_state(descriptor: StateDescriptor, frame: DataFrame) -> KeyedRows:
    """Return the rows of a keyed state.

    Columns are `key` and `value`; of a list state `list_value`, or a row per element with
    `list_element` and `list_position`; of a map state `user_map_key` and `user_map_value`, or a
    whole map as `map_value`. An accumulator is the value of an aggregating state. With a
    time-to-live, `alive_since` says when a value was last written; by default now. Of whole lists
    and maps it is an array with a time for each element or entry, or one time for all.
    """
    return rows_of_state(descriptor.name, info_of(descriptor), frame)


def window_state(descriptor: StateDescriptor, frame: DataFrame, windows: str = TIME) -> KeyedRows:
    """Return the rows of a state per window, such as the contents of windows.

    They have the columns of `keyed_state`, and `window_start` and `window_end` in milliseconds; if
    `windows` is `count`, the number of the `window`; if it is `global`, nothing.
    """
    if windows not in (TIME, COUNT, GLOBAL):
        message = f"windows are {TIME!r}, {COUNT!r} or {GLOBAL!r}; got {windows!r}"
        raise ValueError(message)
    return rows_of_state(descriptor.name, info_of(descriptor, windows), frame)


def event_time_timers(frame: DataFrame) -> KeyedRows:
    """Return timers in event time, with the columns `key` and `expiration_timestamp_ms`.

    Timers of windows also have the columns of the window.
    """
    return KeyedRows(EVENT_TIMERS, TIMERS_INFO, frame)


def processing_time_timers(frame: DataFrame) -> KeyedRows:
    """Return timers in processing time, with the columns `key` and `expiration_timestamp_ms`."""
    return KeyedRows(PROCESSING_TIMERS, TIMERS_INFO, frame)


def broadcast_state(
    descriptor: MapStateDescriptor, rows: DataFrame | Mapping[Any, Any]
) -> OperatorRows:
    """Return the entries of a broadcast state: a dict, or a DataFrame with two columns.

    The columns are `user_map_key` and `user_map_value`, or `key` and `value`.
    """
    pairs = rows.items() if isinstance(rows, Mapping) else rows
    return OperatorRows(descriptor, RedistributionMode.BROADCAST, pairs)


def operator_list_state(
    descriptor: ListStateDescriptor, rows: DataFrame | Iterable[Any]
) -> OperatorRows:
    """Return the elements of a list of operator state, of which each goes to one subtask.

    They are in a list, or in the column `list_element` of a DataFrame, in the order of
    `list_position` if there is one.
    """
    return OperatorRows(descriptor, RedistributionMode.SPLIT, rows)


def union_list_state(
    descriptor: ListStateDescriptor, rows: DataFrame | Iterable[Any]
) -> OperatorRows:
    """Return the elements of a list of operator state that every subtask gets as a whole."""
    return OperatorRows(descriptor, RedistributionMode.UNION, rows)


def rows_of_state(name: str, info: StateMetaInfo, frame: DataFrame) -> KeyedRows:
    """Return the rows of a state, with lists whole and maps entry by entry."""
    columns = frame.columns
    if info.kind == LIST_STATE and _ELEMENT in columns and _LIST_COLUMNS[0] not in columns:
        frame = _with_whole_lists(frame, expires=info.ttl is not None)
    elif info.kind == MAP_STATE and _WHOLE_MAP in columns and "user_map_key" not in columns:
        frame = _with_entries(frame, expires=info.ttl is not None)
    return KeyedRows(name, info, frame)


def _with_entries(frame: DataFrame, *, expires: bool) -> DataFrame:
    """Return a row for each entry of maps, with its own last access."""
    keys = [name for name in _KEY_COLUMNS if name in frame.columns]
    entries = F.posexplode(_WHOLE_MAP).alias("at", "user_map_key", "user_map_value")
    if not expires or _SINCE not in frame.columns:
        return frame.select(*keys, entries).drop("at")
    since = F.col(_SINCE)
    one, count = since, F.size(_WHOLE_MAP).alias("count")
    if isinstance(frame.schema[_SINCE].dataType, ArrayType):
        # Without a last access for each entry there is none: that is a problem, not now.
        fits = since.isNull() | (F.size(since) == F.col("count"))
        one = F.when(fits, F.array(F.get(since, F.col("at")))).otherwise(F.slice(since, 1, 0))
    numbered = frame.select(*keys, since, count, entries)
    return numbered.select(*keys, "user_map_key", "user_map_value", one.alias(_SINCE))


def _with_whole_lists(frame: DataFrame, *, expires: bool) -> DataFrame:
    """Collect the elements of each list, in the order of their positions."""
    if _POSITION not in frame.columns:
        message = (
            f"rows with a {_ELEMENT!r} each need a {_POSITION!r}, which says in which order the "
            f"elements of a list are; or give whole lists in the column {_LIST_COLUMNS[0]!r}"
        )
        raise ValueError(message)
    keys = [name for name in _KEY_COLUMNS if name in frame.columns]
    parts = {_LIST_COLUMNS[0]: _ELEMENT}
    if expires and _SINCE in frame.columns:
        parts[_SINCE] = _SINCE
    numbered = [F.col(_POSITION).alias("at"), *(F.col(n).alias(to) for to, n in parts.items())]
    collected = F.array_sort(
        F.collect_list(F.struct(*numbered)),
        lambda one, other: (
            F.when(one["at"] < other["at"], -1).when(one["at"] > other["at"], 1).otherwise(0)
        ),
    )
    return (
        frame.groupBy(*keys)
        .agg(collected.alias("numbered"))
        .select(*keys, *(F.col("numbered")[name].alias(name) for name in parts))
    )


def collected(rows: OperatorRows) -> list[Any]:
    """Return the elements or entries of operator state, on the driver.

    Raises:
        ValueError: the DataFrame lacks a column.
    """
    if not isinstance(rows.rows, DataFrame):
        return list(rows.rows)
    frame, descriptor = rows.rows, rows.descriptor
    if isinstance(descriptor, MapStateDescriptor):
        keys = _column(frame, descriptor.key_type_info, "user_map_key", "key")
        values = _column(frame, descriptor.value_type_info, "user_map_value", "value")
        return list(zip(*_values(frame, [keys, values]), strict=True))
    assert isinstance(descriptor, ListStateDescriptor)
    if _POSITION in frame.columns:
        frame = frame.orderBy(_POSITION)
    elements = _column(frame, descriptor.element_type_info, _ELEMENT, "value")
    return _values(frame, [elements])[0]


def _values(frame: DataFrame, columns: list[tuple[str, TypeInformation]]) -> list[list[Any]]:
    table = frame.select(*[name for name, _ in columns]).toArrow().combine_chunks()
    if not table.num_rows:
        return [[] for _ in columns]
    return [
        unwrapped(table.column(name).chunk(0), type_info).to_pylist() for name, type_info in columns
    ]


def _column(
    frame: DataFrame, type_info: TypeInformation, *names: str
) -> tuple[str, TypeInformation]:
    found = next((name for name in names if name in frame.columns), None)
    if found is None:
        message = f"the rows need a column {' or '.join(map(repr, names))}; got {frame.columns}"
        raise ValueError(message)
    return found, type_info
