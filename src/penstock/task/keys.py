"""The distinct keys of a chunk of records: numbered, encoded once, and assigned to subtasks."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.state.key_groups import key_group, routed_key, subtask_of
from penstock.state.keys import KeyCodec

# Equal values of one of these types have equal encodings, and unequal ones unequal:
# a dict over the values themselves tells keys apart as well as one over their bytes.
_EXACT = frozenset({str, int, bytes})


class KeyTable:
    """Numbers the keys of a chunk as they appear and remembers where each belongs."""

    def __init__(self, codec: KeyCodec, max_parallelism: int, parallelism: int) -> None:
        self._encode = codec.encode
        self._max_parallelism = max_parallelism
        self._parallelism = parallelism
        self.routed: list[list[bytes]] = [[] for _ in range(parallelism)]
        """Per consumer subtask, its distinct keys."""
        self._owner: list[int] = []
        self._position: list[int] = []
        self.exact = False
        """Whether all keys were of one type for which value and encoding agree."""

    def number(self, keys: Sequence[Any]) -> None:
        """Take the chunk's keys, in record order."""
        kinds = set(map(type, keys))
        self.exact = len(kinds) == 1 and kinds <= _EXACT
        by_value = keys if self.exact else list(map(self._encode, keys))
        numbers = _Numbers(self._add if self.exact else self._add_encoded)
        ids = np.fromiter(map(numbers.__getitem__, by_value), np.int32, len(keys))
        self._rows_owner = np.array(self._owner, np.int32)[ids]
        self._rows_position = np.array(self._position, np.int32)[ids]

    def rows_of(self, subtask: int) -> npt.NDArray[np.intp]:
        """Return which records belong to a consumer subtask, in order."""
        return np.flatnonzero(self._rows_owner == subtask)

    def positions(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int32]:
        """Return, for those records, their key's position among the subtask's keys."""
        return self._rows_position[rows]

    def _add(self, key: Any) -> int:
        return self._add_encoded(self._encode(key))

    def _add_encoded(self, encoded: bytes) -> int:
        group = key_group(encoded, self._max_parallelism)
        owner = subtask_of(group, self._max_parallelism, self._parallelism)
        mine = self.routed[owner]
        self._owner.append(owner)
        self._position.append(len(mine))
        mine.append(routed_key(encoded, group))
        return len(self._owner) - 1


class _Numbers(dict[Any, int]):
    def __init__(self, add: Any) -> None:
        super().__init__()
        self._add = add

    def __missing__(self, key: Any) -> int:
        number: int = self._add(key)
        self[key] = number
        return number


_KEY_GROUP = struct.Struct(">H")


def key_group_of(routed: bytes) -> int:
    """Return the key group a routed key starts with."""
    group: int = _KEY_GROUP.unpack_from(routed)[0]
    return group
