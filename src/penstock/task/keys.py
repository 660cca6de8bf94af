"""The distinct keys of a chunk of records: numbered, encoded once, and assigned to subtasks."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.state.key_groups import key_groups_of, routed_key
from penstock.state.keys import KeyCodec, are_plain_texts

# Equal values of one of these types have equal encodings, and unequal ones unequal:
# a dict over the values themselves tells keys apart as well as one over their bytes.
_EXACT = frozenset({str, int, bytes})


class KeyTable:
    """Which keys a chunk has, and which record belongs to whom."""

    def __init__(
        self, keys: Sequence[Any], codec: KeyCodec, max_parallelism: int, parallelism: int
    ) -> None:
        kinds = set(map(type, keys))
        kind = kinds.pop() if len(kinds) == 1 else None
        self.exact = kind in _EXACT
        """Whether all keys are of one type for which value and encoding agree."""
        told_apart = keys if self.exact else list(map(codec.encode, keys))
        number_of = {key: number for number, key in enumerate(dict.fromkeys(told_apart))}
        encoded = (
            codec.encode_all(number_of, kind)
            if self.exact and kind is not None
            else list(number_of)
        )
        self.plain_texts = kind is str and are_plain_texts(number_of, encoded)
        """Whether all keys are texts that decode in bulk."""
        groups = key_groups_of(encoded, max_parallelism)
        routed = list(map(routed_key, encoded, groups.tolist()))
        owners = groups * parallelism // max_parallelism
        positions = np.empty(len(routed), np.int32)
        self.routed: list[list[bytes]] = []
        """Per consumer subtask, its distinct keys."""
        for subtask in range(parallelism):
            mine = owners == subtask
            self.routed.append(list(compress(routed, mine.tolist())))
            positions[mine] = np.arange(len(self.routed[-1]), dtype=np.int32)
        numbers = np.fromiter(map(number_of.__getitem__, told_apart), np.int32, len(keys))
        self._row_owners = owners[numbers]
        self._row_positions = positions[numbers]

    def rows_of(self, subtask: int) -> npt.NDArray[np.intp]:
        """Return which records belong to a consumer subtask, in order."""
        return np.flatnonzero(self._row_owners == subtask)

    def positions(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int32]:
        """Return, for those records, their key's position among the subtask's keys."""
        return self._row_positions[rows]


_KEY_GROUP = struct.Struct(">H")


def key_group_of(routed: bytes) -> int:
    """Return the key group a routed key starts with."""
    group: int = _KEY_GROUP.unpack_from(routed)[0]
    return group
