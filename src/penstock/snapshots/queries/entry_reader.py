"""Store entries of one state as JSON objects: key, window, map key, value, and when it expires."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from typing import Any

from penstock.common.typeinfo import MapTypeInfo
from penstock.savepoint.key_columns import window_columns
from penstock.snapshots.json_values import BASE64
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.queries.wire_json import key_reader, value_reader
from penstock.state.key_groups import end_of_key, key_of
from penstock.state.registry.meta_info import NO_VALUE, RAW_STATE
from penstock.state.ttl.timestamps import prune_of, split_timestamps
from penstock.state.window_encoding import length_of
from penstock.types.signature import parse_signature

Entry = tuple[bytes, bytes]
ReadBytes = Callable[[bytes], Any]

_TABLE = 2
_TIMER_AT = 5
_TIME = struct.Struct(">Q")
_BIAS = 1 << 63


class EntryReader:
    """Makes JSON of the entries of a state; any thread may call."""

    def __init__(self, state: KeyedState) -> None:
        self._state = state
        self._key = key_reader(state.key_type_info)
        self._map_key: ReadBytes | None = None
        self._value = _values_of(state)
        self._windows = state.info.windows
        self._window_names = window_columns(self._windows).names if self._windows else ()
        if state.is_map:
            type_info = parse_signature(state.info.type)
            assert isinstance(type_info, MapTypeInfo)
            self._map_key = key_reader(type_info.key)

    def read(self, entry: Entry) -> dict[str, Any]:
        """Return one entry; `expires` is a time in milliseconds, of a list one per element."""
        stored, value = entry
        if self._state.are_timers:
            (time,) = _TIME.unpack_from(stored, _TIMER_AT)
            key = key_of(b"\0\0" + stored[_TIMER_AT + _TIME.size :])
            return {"key": self._key(key), "time": time - _BIAS}
        routed = stored[_TABLE:]
        found = {"key": self._key(key_of(routed))}
        at = end_of_key(routed)
        if self._windows:
            stop = at + length_of(self._windows, routed, at)
            for number, name in enumerate(self._window_names):
                (biased,) = _TIME.unpack_from(routed, at + number * _TIME.size)
                found[name] = biased - _BIAS
            at = stop
        if self._map_key is not None:
            found["map_key"] = self._map_key(routed[at:])
        ttl = self._state.info.ttl
        if ttl is None:
            found["value"] = self._value(value)
            return found
        timestamps, body = split_timestamps(value, self._state.kind)
        expires = [timestamp + ttl.millis for timestamp in timestamps]
        found["value"] = self._value(body)
        found["expires"] = expires if self._state.is_list else expires[0]
        return found

    def alive(self, entries: Iterator[Entry], now_ms: int) -> Iterator[Entry]:
        """Leave out what has expired: entries, and elements of lists."""
        ttl = self._state.info.ttl
        if ttl is None:
            yield from entries
            return
        prune, expired_until = prune_of(self._state.kind), now_ms - ttl.millis
        for key, value in entries:
            left, _ = prune(value, expired_until)
            if left is not None:
                yield key, left


def _values_of(state: KeyedState) -> ReadBytes:
    if state.are_timers or state.kind == RAW_STATE:
        return _base64
    type_info = parse_signature(state.info.type)
    if not state.is_map:
        return value_reader(type_info)
    assert isinstance(type_info, MapTypeInfo)
    read = value_reader(type_info.value)
    return lambda data: None if data == NO_VALUE else read(data)


def _base64(data: bytes) -> dict[str, str]:
    return {BASE64: base64.b64encode(data).decode()}
