"""Keys and windows as columns that people and query engines can read.

These columns are for display: a restore uses the encoded bytes in the columns next to them.
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
from penstock.state.keys import INTEGER_TAG, decode_key
from penstock.state.window_encoding import COUNT, TIME
from penstock.types.serializers import wire_of
from penstock.types.signature import parse_signature

TEXT_TAG = b"0"
"""What the stored bytes of texts begin with; they end with a zero byte."""
_TEXTS = column_of(Types.STRING())
_WINDOW_COLUMNS = {TIME: ("window_start", "window_end"), COUNT: ("window",)}
_BIAS = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """The Arrow column of encoded keys of one type."""

    arrow: pa.DataType
    to_arrow: Callable[[pa.BinaryArray], pa.Array]


def key_column(signature: str) -> KeyColumn:
    """Return the column for keys of a type; keys without a declared type become text."""
    type_info = parse_signature(signature) if signature else PickledBytesTypeInfo()
    show = _as_text if isinstance(type_info, PickledBytesTypeInfo) else _typed(type_info)
    arrow = pa.string() if show is _as_text else column_of(type_info).arrow

    def to_arrow(encoded: pa.BinaryArray) -> pa.Array:
        quick = None
        if pa.types.is_integer(arrow):
            quick = _integers(encoded, arrow)
        elif arrow == pa.string():
            quick = _plain_texts(encoded)
        return show(_decoded(encoded)) if quick is None else quick

    return KeyColumn(arrow, to_arrow)


def time_column() -> KeyColumn:
    """Return the column of times, which timers have in place of the key."""

    def to_arrow(encoded: pa.BinaryArray) -> pa.Array:
        biased = np.frombuffer(b"".join(encoded.to_pylist()), ">u8")
        return pa.array((biased.astype(np.uint64) ^ _BIAS).view(np.int64))

    return KeyColumn(pa.int64(), to_arrow)


def timer_key_column(signature: str) -> KeyColumn:
    """Return the column for the keys of timers, between their length and the namespace."""
    column = key_column(signature)

    def to_arrow(entries: pa.BinaryArray) -> pa.Array:
        keys = [key_of(b"\0\0" + entry) for entry in entries.to_pylist()]
        return column.to_arrow(pa.array(keys, pa.binary()))

    return KeyColumn(column.arrow, to_arrow)


def _plain_texts(encoded: pa.BinaryArray) -> pa.Array | None:
    """Return keys that are all plain texts without decoding them one by one, else None."""
    texts = pc.binary_slice(encoded, 1, -1)
    is_text = pc.all(pc.equal(pc.binary_slice(encoded, 0, 1), TEXT_TAG)).as_py()
    if not is_text or pc.any(pc.match_substring(texts, "\0")).as_py():
        return None
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        return None  # lone surrogates


def _integers(encoded: pa.BinaryArray, arrow: pa.DataType) -> pa.Array | None:
    """Return keys that are all integers without decoding them one by one, else None."""
    if not len(encoded):
        return pa.array([], arrow)
    _, offsets, buffer = encoded.buffers()
    stops = np.frombuffer(offsets, np.int32)[encoded.offset : encoded.offset + len(encoded) + 1]
    data = np.frombuffer(buffer, np.uint8)
    starts = stops[:-1]
    sizes = data[starts].astype(np.int64) - INTEGER_TAG
    if not np.array_equal(stops[1:] - starts, np.abs(sizes) + 1):
        return None  # None, or longer integers
    numbers = np.zeros(len(encoded), np.uint64)
    for size in np.unique(sizes).tolist():
        (at,) = np.nonzero(sizes == size)
        found = np.zeros(len(at), np.uint64)
        for place in range(1, abs(size) + 1):
            found = found << np.uint64(8) | data[starts[at] + place].astype(np.uint64)
        if size < 0:
            # Modulo 2 ** 64, as the view as signed integers is.
            found = found + np.uint64(1) - np.uint64((1 << 8 * -size) % (1 << 64))
        numbers[at] = found
    signed = numbers.view(np.int64)
    if np.any((signed < 0) != (sizes < 0)):
        return None  # more than 63 bits
    return pa.array(signed).cast(arrow)


def _decoded(encoded: pa.BinaryArray) -> list[Any]:
    keys = encoded.to_pylist()
    known = {key: decode_key(key) for key in set(keys)}
    return [known[key] for key in keys]


def _typed(type_info: TypeInformation) -> Callable[[Sequence[Any]], pa.Array]:
    column, to_wire = column_of(type_info), wire_of(type_info).to_wire

    def show(keys: Sequence[Any]) -> pa.Array:
        if to_wire is not None:
            keys = [None if key is None else to_wire(key) for key in keys]
        return column.to_arrow(keys)

    return show


def _as_text(keys: Sequence[Any]) -> pa.Array:
    texts = [key if isinstance(key, str) else repr(key) for key in keys]
    return _TEXTS.to_arrow(texts)


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """The Arrow columns of windows of one encoding: the numbers they consist of."""

    names: tuple[str, ...]

    @property
    def fields(self) -> list[pa.Field]:
        """The columns in their order."""
        return [pa.field(name, pa.int64()) for name in self.names]

    def to_arrow(self, windows: Sequence[bytes]) -> dict[str, pa.Array]:
        """Return the columns, by name."""
        biased = np.frombuffer(b"".join(windows) if self.names else b"", ">u8")
        numbers = (biased.astype(np.uint64) ^ _BIAS).view(np.int64)
        count = len(self.names)
        return {name: pa.array(numbers[i::count]) for i, name in enumerate(self.names)}


def window_columns(encoding: str) -> WindowColumns:
    """Return the columns for windows of an encoding, which may be none."""
    return WindowColumns(_WINDOW_COLUMNS.get(encoding, ()))
