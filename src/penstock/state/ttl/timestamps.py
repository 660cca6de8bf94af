"""The stored bytes of values with a time-to-live: last-access timestamps, then the value.

A timestamp is 8 bytes, in milliseconds. A value and a map's entry have one; a list has one for each
element, after their number. The rest is what a state without a time-to-live would store.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import msgspec

from penstock.state.registry.meta_info import LIST_STATE

Prune = Callable[[bytes, int], tuple[bytes | None, int]]
"""Removes everything that was last accessed at a time or before from stored bytes.

Returns what remains, None for nothing, and its oldest timestamp.
"""

TIMESTAMP = struct.Struct(">q")
_COUNT = struct.Struct(">I")

_elements = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_pack = msgspec.msgpack.Encoder().encode


def with_timestamps(timestamps: Sequence[int], body: bytes, kind: str) -> bytes:
    """Return the stored bytes of timestamps and the values that they belong to."""
    if kind == LIST_STATE:
        return struct.pack(f">I{len(timestamps)}q", len(timestamps), *timestamps) + body
    (timestamp,) = timestamps
    return TIMESTAMP.pack(timestamp) + body


def split_timestamps(data: bytes, kind: str) -> tuple[Sequence[int], bytes]:
    """Return the timestamps in stored bytes, and the values that they belong to."""
    if kind == LIST_STATE:
        (count,) = _COUNT.unpack_from(data)
        stop = _COUNT.size + count * TIMESTAMP.size
        return struct.unpack_from(f">{count}q", data, _COUNT.size), data[stop:]
    return TIMESTAMP.unpack_from(data), data[TIMESTAMP.size :]


def add_timestamps(body: bytes, kind: str, timestamp: int) -> bytes:
    """Return what a state without a time-to-live stored as if it was all written at one time."""
    return with_timestamps([timestamp] * count_of(body, kind), body, kind)


def count_of(body: bytes, kind: str) -> int:
    """Return how many timestamps belong to what a state without a time-to-live stored."""
    return len(_elements(body)) if kind == LIST_STATE else 1


def prune_of(kind: str) -> Prune:
    """Return the function that prunes stored bytes of a kind of state."""
    return _prune_list if kind == LIST_STATE else _prune_value


def _prune_value(data: bytes, expired_until: int) -> tuple[bytes | None, int]:
    (timestamp,) = TIMESTAMP.unpack_from(data)
    return (None if timestamp <= expired_until else data), timestamp


def _prune_list(data: bytes, expired_until: int) -> tuple[bytes | None, int]:
    timestamps, body = split_timestamps(data, LIST_STATE)
    alive = [timestamp for timestamp in timestamps if timestamp > expired_until]
    if not alive:
        return None, expired_until
    if len(alive) == len(timestamps):
        return data, min(alive)
    pairs = zip(timestamps, _elements(body), strict=True)
    kept = [element for timestamp, element in pairs if timestamp > expired_until]
    return with_timestamps(alive, _pack(kept), LIST_STATE), min(alive)
