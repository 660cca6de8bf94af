"""Keys as columns that people and query engines can read.

These columns are for looking at: what a restore goes by are the keys' own bytes beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import PickledBytesTypeInfo, TypeInformation, Types
from penstock.savepoint.columns import column_of
from penstock.state.key_groups import key_of
from penstock.state.keys import decode_key
from penstock.state.serializers import wire_of
from penstock.state.type_text import parse

__all__ = ["KeyColumn", "key_column", "time_column", "timer_key_column"]

_TEXT_TAG = b"0"
_TEXTS = column_of(Types.STRING())


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """How encoded keys of one type are shown in Arrow."""

    arrow: pa.DataType
    fill: Callable[[pa.BinaryArray], pa.Array]


def key_column(type_text: str) -> KeyColumn:
    """Return the column for keys of a type; keys without a declared type are shown as text."""
    type_info = parse(type_text) if type_text else PickledBytesTypeInfo()
    show = _shown_as_text if isinstance(type_info, PickledBytesTypeInfo) else _typed(type_info)
    arrow = pa.string() if show is _shown_as_text else column_of(type_info).arrow

    def fill(encoded: pa.BinaryArray) -> pa.Array:
        texts = _plain_texts(encoded) if arrow == pa.string() else None
        return show(_decoded(encoded)) if texts is None else texts

    return KeyColumn(arrow, fill)


def time_column() -> KeyColumn:
    """Return the column that takes the place of the key where entries are in order of time."""

    def fill(encoded: pa.BinaryArray) -> pa.Array:
        biased = np.frombuffer(b"".join(encoded.to_pylist()), ">u8")
        return pa.array((biased ^ np.uint64(1 << 63)).astype(np.uint64).view(np.int64))

    return KeyColumn(pa.int64(), fill)


def timer_key_column(type_text: str) -> KeyColumn:
    """Return the column for the keys of timers, with a length before and a namespace behind."""
    column = key_column(type_text)

    def fill(entries: pa.BinaryArray) -> pa.Array:
        keys = [key_of(b"\0\0" + entry) for entry in entries.to_pylist()]
        return column.fill(pa.array(keys, pa.binary()))

    return KeyColumn(column.arrow, fill)


def _plain_texts(encoded: pa.BinaryArray) -> pa.Array | None:
    """Return keys that are all plain texts without decoding them one by one, else None."""
    texts = pc.binary_slice(encoded, 1, -1)
    is_text = pc.all(pc.equal(pc.binary_slice(encoded, 0, 1), _TEXT_TAG)).as_py()
    if not is_text or pc.any(pc.match_substring(texts, "\0")).as_py():
        return None
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        return None  # lone surrogates


def _decoded(encoded: pa.BinaryArray) -> list[Any]:
    keys = encoded.to_pylist()
    known = {key: decode_key(key) for key in set(keys)}
    return [known[key] for key in keys]


def _typed(type_info: TypeInformation) -> Callable[[Sequence[Any]], pa.Array]:
    column, to_wire = column_of(type_info), wire_of(type_info).to_wire

    def show(keys: Sequence[Any]) -> pa.Array:
        if to_wire is not None:
            keys = [None if key is None else to_wire(key) for key in keys]
        return column.fill(keys)

    return show


def _shown_as_text(keys: Sequence[Any]) -> pa.Array:
    texts = [key if isinstance(key, str) else repr(key) for key in keys]
    return _TEXTS.fill(texts)
