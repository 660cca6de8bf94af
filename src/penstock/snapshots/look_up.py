"""Looks up keys in the keyed state of an operator, and scans it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from penstock.common.typeinfo import MapTypeInfo
from penstock.errors import BadCursorError, KeyNotOfTypeError
from penstock.savepoint.key_columns import TEXT_TAG
from penstock.snapshots.json_values import encoded_key
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.state_parts import OpenPart
from penstock.state.backends.store import end_of_prefix
from penstock.state.key_groups import LONG_KEY, KeyGroupRange, key_group, routed_key
from penstock.state.keys import KeyCodec
from penstock.state.window_encoding import length_of
from penstock.types.signature import parse_signature

Entry = tuple[bytes, bytes]

_TABLE = 2
_TIMER_KEY_AT = 11
"""In a stored timer: after key group, length and time (`state.keyed.timers`)."""


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended, for the next one: the stored key after which it continues."""

    after: bytes

    def encode(self) -> str:
        """Return it as text that is safe in URLs."""
        return base64.urlsafe_b64encode(self.after).decode().rstrip("=")

    @staticmethod
    def decode(text: str) -> Cursor:
        """Return the cursor of a text.

        Raises:
            BadCursorError: the text is no cursor.
        """
        try:
            after = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise BadCursorError(text) from None
        if len(after) < 3:
            raise BadCursorError(text)
        return Cursor(after)


@dataclass(frozen=True, slots=True)
class OpenOperator:
    """The open parts of an operator's keyed state, in the order of their key groups."""

    parts: Sequence[OpenPart]
    key_groups: Sequence[KeyGroupRange]

    def find(
        self,
        state: KeyedState,
        encoded: bytes,
        map_key: bytes | None = None,
        after: Cursor | None = None,
    ) -> Iterator[Entry]:
        """Iterate over the store entries of an encoded key, or only those of one map key."""
        group = key_group(encoded, state.max_parallelism)
        first = b"" if after is None else after.after + b"\0"
        if state.are_timers:
            return self._timers_of(state, encoded, group, first)
        key = routed_key(encoded, group)
        if not state.info.windows and (map_key is not None or not state.is_map):
            return self._entry(state, group, key + (map_key or b""))
        found = self._entries(state, group, max(first, key), end_of_prefix(key))
        if map_key is None:
            return found
        return (entry for entry in found if _map_key_in(state, entry[0], len(key)) == map_key)

    def scan(
        self, state: KeyedState, after: Cursor | None = None, prefix: bytes = b""
    ) -> Iterator[Entry]:
        """Iterate over the store entries after a cursor, by key group and stored key.

        With `prefix` only those whose keys begin so: see `key_prefix`.
        """
        return self._with_prefix(state, after, prefix) if prefix else self._after(state, after)

    def _entry(self, state: KeyedState, group: int, key: bytes) -> Iterator[Entry]:
        for part, groups in zip(self.parts, self.key_groups, strict=True):
            if group in groups and (found := part.get(state, key)) is not None:
                yield found

    def _entries(
        self, state: KeyedState, group: int, start: bytes, stop: bytes | None
    ) -> Iterator[Entry]:
        for part, groups in zip(self.parts, self.key_groups, strict=True):
            if group in groups:
                return part.entries(state, start, stop)
        return iter(())

    def _after(self, state: KeyedState, after: Cursor | None) -> Iterator[Entry]:
        start = b"" if after is None else after.after + b"\0"
        for part, groups in zip(self.parts, self.key_groups, strict=True):
            if groups.stop > int.from_bytes(start[:2], "big"):
                yield from part.entries(state, start, None)

    def _timers_of(
        self, state: KeyedState, encoded: bytes, group: int, first: bytes
    ) -> Iterator[Entry]:
        """Iterate over the timers of a key; they are stored by their time."""
        mine = routed_key(encoded, group)[2:]
        start = max(first, group.to_bytes(2, "big"))
        stop = (group + 1).to_bytes(2, "big")
        for key, value in self._entries(state, group, start, stop):
            if key[2 + _TIMER_KEY_AT :].startswith(mine):
                yield key, value

    def _with_prefix(
        self, state: KeyedState, after: Cursor | None, prefix: bytes
    ) -> Iterator[Entry]:
        """Skip from length to length: keys of a key group are sorted by their length first."""
        start = b"" if after is None else after.after + b"\0"
        for part, groups in zip(self.parts, self.key_groups, strict=True):
            for group in groups:
                if group >= int.from_bytes(start[:2], "big"):
                    yield from _keys_with(part, state, group, prefix, start)


def _map_key_in(state: KeyedState, stored: bytes, length: int) -> bytes:
    """Return the map key after a routed key of some length and a window."""
    at = _TABLE + length
    return stored[at + length_of(state.info.windows, stored, at) :]


def _keys_with(
    part: OpenPart, state: KeyedState, group: int, prefix: bytes, start: bytes
) -> Iterator[Entry]:
    at, stop = max(start, group.to_bytes(2, "big")), (group + 1).to_bytes(2, "big")
    while True:
        found = next(iter(part.entries(state, at, stop)), None)
        if found is None:
            return
        stored = found[0][2:]
        length = stored[: 3 if stored[2] < LONG_KEY else 7]
        low = max(at, length + prefix)
        high = end_of_prefix(length + prefix)
        yield from part.entries(state, low, high)
        following = end_of_prefix(length)
        if following is None or following >= stop:
            return
        at = following


def key_prefix(state: KeyedState, text: str) -> bytes:
    """Return what the stored bytes of keys begin with that are texts and begin with a text.

    Raises:
        KeyNotOfTypeError: keys are no texts.
    """
    encoded = encoded_key(state.key_codec, text)
    if encoded[:1] != TEXT_TAG:
        raise KeyNotOfTypeError(text, repr(state.key_type_info), "only texts have prefixes")
    return encoded[:-1]


def map_key_codec(state: KeyedState) -> KeyCodec:
    """Return what encodes the keys inside the maps of a state."""
    type_info = parse_signature(state.info.type)
    assert isinstance(type_info, MapTypeInfo)
    return KeyCodec(type_info.key, state.operator)
