"""The keys of the running micro-batch, and the current one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.errors import InvalidJobError
from penstock.state.backends.store import StateStore
from penstock.state.key_groups import key_of
from penstock.state.keys import KeyCodec

_LARGEST_PADDED = 1 << 26


class _Unloaded:
    """Marks a value that has not been read from the store yet."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNLOADED"


UNLOADED: Any = _Unloaded()


class _NoKey:
    """The current key's number while there is no current record: any use of it is an error."""

    __slots__ = ()

    def __index__(self) -> int:
        message = (
            "keyed state belongs to a key: use it while a record with a key is processed, not in "
            "open(), close() or process_broadcast_element()"
        )
        raise InvalidJobError(message)

    def __hash__(self) -> int:
        return self.__index__()


NO_KEY: Any = _NoKey()


class KeyContext:
    """The distinct keys of one micro-batch, numbered; ``current`` is the number of one of them.

    States are lists that are indexed by these numbers, which makes them fast.
    """

    __slots__ = ("_keys", "_order", "codec", "current", "now", "routed", "step", "store", "windows")

    store: StateStore

    def __init__(self, step: str, codec: KeyCodec) -> None:
        self.step = step
        self.codec = codec
        self.windows = ""
        """The encoding of the window after each key, if states are per window."""
        self.current: int = NO_KEY
        self.now = 0
        """Processing time in milliseconds; it does not advance during a micro-batch."""
        self.routed: list[bytes] = []
        self._keys: list[Any] = []
        self._order: list[int] | None = None

    def current_key(self) -> Any:
        """Return the key of the record being processed."""
        return self.key_at(self.current)

    def key_at(self, index: int) -> Any:
        """Return the key with this number."""
        key = self._keys[index]
        if key is UNLOADED:
            key = self._keys[index] = self.codec.decode(key_of(self.routed[index]))
        return key

    def order(self) -> list[int]:
        """Return the numbers in the order of their stored keys."""
        if self._order is None:
            self._order = _sorted_numbers(self.routed)
        return self._order

    def _enter(
        self, store: StateStore, routed: list[bytes], keys: Sequence[Any] | None = None
    ) -> None:
        self.store = store
        self.routed = routed
        self._keys = [UNLOADED] * len(routed) if keys is None else list(keys)
        self._order = None
        self.current = NO_KEY

    def _add(self, routed: Sequence[bytes]) -> None:
        self.routed.extend(routed)
        self._keys.extend([UNLOADED] * len(routed))
        self._order = None


def _sorted_numbers(keys: list[bytes]) -> list[int]:
    # numpy sorts these twice as fast but pads them all to the longest. The padding cannot change
    # their order: no routed key is a prefix of another.
    if len(keys) * len(max(keys, key=len, default=b"")) > _LARGEST_PADDED:
        return sorted(range(len(keys)), key=keys.__getitem__)
    numbers: list[int] = np.array(keys, dtype=np.bytes_).argsort(kind="stable").tolist()
    return numbers
