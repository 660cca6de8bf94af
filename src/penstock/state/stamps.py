"""Values that expire, as a store keeps them: behind the time of the access that keeps them alive.

That time, in milliseconds, is a *stamp* of 8 bytes. A value and a map's entry have one; a list has
one for each element, behind how many there are. What follows the stamps is what a state without a
time-to-live would store.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import msgspec

from penstock.state.table import LIST_STATE

__all__ = ["Prune", "add_stamps", "prune_of", "split_stamps", "stamped", "stamps_of"]

Prune = Callable[[bytes, int], tuple[bytes | None, int]]
"""Drops from stored bytes what is stamped no later than a time.

Returns what is left, None for nothing, and the oldest stamp in it.
"""

STAMP = struct.Struct(">q")
_COUNT = struct.Struct(">I")

_elements = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_pack = msgspec.msgpack.Encoder().encode


def stamped(stamps: Sequence[int], body: bytes, kind: str) -> bytes:
    """Return stamps and what they are for as a store keeps them."""
    if kind == LIST_STATE:
        return struct.pack(f">I{len(stamps)}q", len(stamps), *stamps) + body
    (stamp,) = stamps
    return STAMP.pack(stamp) + body


def split_stamps(data: bytes, kind: str) -> tuple[Sequence[int], bytes]:
    """Return the stamps in stored bytes, and what they are for."""
    if kind == LIST_STATE:
        (count,) = _COUNT.unpack_from(data)
        stop = _COUNT.size + count * STAMP.size
        return struct.unpack_from(f">{count}q", data, _COUNT.size), data[stop:]
    return STAMP.unpack_from(data), data[STAMP.size :]


def stamps_of(data: bytes, kind: str) -> Sequence[int]:
    """Return the stamps in stored bytes."""
    return split_stamps(data, kind)[0]


def add_stamps(body: bytes, kind: str, stamp: int) -> bytes:
    """Return what a state without a time-to-live stored as if all of it was written at once."""
    count = len(_elements(body)) if kind == LIST_STATE else 1
    return stamped([stamp] * count, body, kind)


def prune_of(kind: str) -> Prune:
    """Return what prunes stored bytes of a kind of state."""
    return _prune_list if kind == LIST_STATE else _prune_value


def _prune_value(data: bytes, dead: int) -> tuple[bytes | None, int]:
    (stamp,) = STAMP.unpack_from(data)
    return (None if stamp <= dead else data), stamp


def _prune_list(data: bytes, dead: int) -> tuple[bytes | None, int]:
    stamps, body = split_stamps(data, LIST_STATE)
    alive = [stamp for stamp in stamps if stamp > dead]
    if not alive:
        return None, dead
    if len(alive) == len(stamps):
        return data, min(alive)
    pairs = zip(stamps, _elements(body), strict=True)
    left = [element for stamp, element in pairs if stamp > dead]
    return stamped(alive, _pack(left), LIST_STATE), min(alive)
