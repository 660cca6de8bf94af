"""The keys of the micro-batch that is running, and which of them is current."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.errors import InvalidJobError
from penstock.state.backends.store import StateStore
from penstock.state.key_groups import key_of
from penstock.state.keys import KeyCodec

__all__ = ["UNLOADED", "KeyScope"]

_LARGEST_PADDED = 1 << 26


class _Unloaded:
    """Marks what has not been read from the store yet."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNLOADED"


UNLOADED: Any = _Unloaded()


class _NoKey:
    """Stands where the number of the current key would, while there is no current record."""

    __slots__ = ()

    def __index__(self) -> int:
        message = (
            "keyed state belongs to a record's key: use it while a record with a key is "
            "processed, not in open(), close() or process_broadcast_element()"
        )
        raise InvalidJobError(message)

    def __hash__(self) -> int:
        return self.__index__()


NO_KEY: Any = _NoKey()


class KeyScope:
    """The distinct keys of one micro-batch, numbered; ``current`` is the number of one of them.

    States are lists with one place per number, which is what makes them fast.
    """

    __slots__ = ("_keys", "_order", "codec", "current", "now", "routed", "step", "store", "windows")

    store: StateStore

    def __init__(self, step: str, codec: KeyCodec) -> None:
        self.step = step
        self.codec = codec
        self.windows = ""
        """How the window behind each key is encoded, where there is one."""
        self.current: int = NO_KEY
        self.now = 0
        """Processing time in milliseconds; it stands still during a micro-batch."""
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
    # their order: no routed key is the beginning of another.
    if len(keys) * len(max(keys, key=len, default=b"")) > _LARGEST_PADDED:
        return sorted(range(len(keys)), key=keys.__getitem__)
    numbers: list[int] = np.array(keys, dtype=np.bytes_).argsort(kind="stable").tolist()
    return numbers
