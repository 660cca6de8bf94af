"""The distinct keys of a chunk of records: numbered, encoded once, and assigned to subtasks."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.channel.columns import exact_column
from penstock.state.key_groups import key_groups_of, routed_keys
from penstock.state.keys import KeyCodec, are_plain_texts, tuple_of

# Equal values of one of these types have equal encodings, and unequal ones unequal:
# Arrow can find the distinct keys without their encodings.
_EXACT: dict[type, pa.DataType] = {str: pa.string(), int: pa.int64(), bytes: pa.binary()}

KEY_CLASSES: dict[pa.DataType, type] = {arrow: kind for kind, arrow in _EXACT.items()}
"""The class of the keys in a column of each type."""

_MAX_COMBINATIONS = 1 << 62

Numbers = npt.NDArray[np.int32]


class KeyTable:
    """The distinct keys of a chunk, and the consumer subtask of each record."""

    def __init__(
        self,
        keys: Sequence[Any],
        codec: KeyCodec,
        max_parallelism: int,
        parallelism: int,
        column: pa.Array | None = None,
    ) -> None:
        """Take the keys in record order, or as a `column` of one of `KEY_CLASSES` without nulls."""
        if column is not None:
            kind = KEY_CLASSES[column.type]
        else:
            kinds = set(map(type, keys))
            kind = kinds.pop() if len(kinds) == 1 else type(None)
            column = exact_column(keys, _EXACT[kind]) if kind in _EXACT else None
        self.exact = column is not None
        """Whether all keys have one type whose values are equal exactly if their encodings are."""
        self.plain_texts = False
        """Whether all keys are texts that can be decoded in bulk."""
        if column is not None:
            distinct, numbers = _distinct(column)
            encoded = codec.encode_all(distinct, kind)
            self.plain_texts = kind is str and are_plain_texts(distinct, encoded)
        elif kind is tuple and (found := _distinct_tuples(keys, codec)) is not None:
            encoded, numbers = found
        else:
            encoded, numbers = _distinct(pa.array(map(codec.encode, keys), pa.binary()))
        groups = key_groups_of(encoded, max_parallelism)
        routed = routed_keys(encoded, groups.tolist())
        owners = groups * parallelism // max_parallelism
        positions = np.empty(len(routed), np.int32)
        self.routed: list[list[bytes]] = []
        """Per consumer subtask, its distinct keys."""
        for subtask in range(parallelism):
            mine = owners == subtask
            self.routed.append(list(compress(routed, mine.tolist())))
            positions[mine] = np.arange(len(self.routed[-1]), dtype=np.int32)
        self._row_owners = owners[numbers]
        self._row_positions = positions[numbers]

    def rows_of(self, subtask: int) -> npt.NDArray[np.intp]:
        """Return which records belong to a consumer subtask, in order."""
        return np.flatnonzero(self._row_owners == subtask)

    def positions(self, rows: npt.NDArray[np.intp]) -> Numbers:
        """Return, for those records, their key's position among the subtask's keys."""
        return self._row_positions[rows]


def merge_dictionaries(dictionaries: Sequence[pa.BinaryArray]) -> tuple[pa.Array, list[Numbers]]:
    """Return the distinct keys of several dictionaries, and each one's keys by number in it."""
    if len(dictionaries) == 1:
        return dictionaries[0], [np.arange(len(dictionaries[0]), dtype=np.int32)]
    merged = pa.concat_arrays(dictionaries).dictionary_encode()
    cuts = np.cumsum([len(d) for d in dictionaries])[:-1]
    return merged.dictionary, np.split(merged.indices.to_numpy(), cuts)


def _distinct_tuples(
    keys: Sequence[tuple[Any, ...]], codec: KeyCodec
) -> tuple[list[bytes], Numbers] | None:
    """Return the distinct encodings of tuples, if each column of items has an exact type."""
    widths = set(map(len, keys))
    parts = codec.parts(widths.pop()) if len(widths) == 1 else None
    if not parts:
        return None
    combined = np.zeros(len(keys), np.int64)
    combinations = 1
    columns = []
    for at, part in enumerate(parts):
        values = list(map(operator.itemgetter(at), keys))
        kinds = set(map(type, values))
        kind = kinds.pop()
        arrow = None if kinds else _EXACT.get(kind)
        column = None if arrow is None else exact_column(values, arrow)
        if column is None:
            return None
        distinct, numbers = _distinct(column)
        combinations *= len(distinct)
        if combinations > _MAX_COMBINATIONS:
            return None
        combined = combined * len(distinct) + numbers
        columns.append(part.encode_all(distinct, kind))
    chosen, numbers = _distinct(pa.array(combined))
    left = np.array(chosen)
    items = []
    for encoded in reversed(columns):
        left, places = np.divmod(left, len(encoded))
        items.append([encoded[place] for place in places.tolist()])
    return list(map(tuple_of, zip(*reversed(items), strict=True))), numbers


def _distinct(column: pa.Array) -> tuple[list[Any], Numbers]:
    encoded = column.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def key_group_of(routed: bytes) -> int:
    """Return the key group that a routed key starts with."""
    return int.from_bytes(routed[:2], "big")
