"""Columns of keys as the bytes that a store keeps, and the key groups they belong to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    PickledBytesTypeInfo,
    TypeInformation,
)
from penstock.snapshots.writing.bad_values import BadValue, convert_each
from penstock.snapshots.writing.columns.python_values import from_column
from penstock.state.key_groups import LONG_KEY, key_groups_of, routed_keys
from penstock.state.keys import KeyCodec
from penstock.types.coercion import INTEGER_BITS
from penstock.types.signature import parse_signature
from penstock.types.traversal import identity

_NULL = "it is null"
_TEXT_TAG, _END = b"0", b"\0"


class KeyEncoder:
    """Encodes a column of keys; a key of no declared type is encoded by its class."""

    def __init__(self, signature: str) -> None:
        type_info = key_type_of(signature)
        self._is_untyped = isinstance(type_info, PickledBytesTypeInfo)
        codec = KeyCodec(None if self._is_untyped else type_info)
        convert = identity if self._is_untyped else from_column(type_info)
        encode = codec.encode

        def encode_one(value: Any) -> bytes:
            if value is None:
                raise ValueError(_NULL)
            return encode(convert(value))

        self._encode = encode_one
        self._is_text = type_info == BasicTypeInfo(BasicType.STRING)
        self._bits = _integer_bits(type_info)

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, list[BadValue]]:
        """Return the bytes of keys, and those that are no keys of the type; these are empty."""
        if not column.null_count:
            if self._is_text and pa.types.is_string(column.type):
                texts = _plain_texts(column)
                if texts is not None:
                    return texts, []
            elif self._bits and pa.types.is_signed_integer(column.type):
                numbers = column.to_numpy(zero_copy_only=False).astype(np.int64)
                if column.type.bit_width <= self._bits:
                    return _integers(numbers), []
        codes, bad = convert_each(column.to_pylist(), self._encode)
        bad = [BadValue(b.row, _NULL) if not column[b.row].is_valid else b for b in bad]
        return pa.array([code or b"" for code in codes], pa.binary()), bad


def key_type_of(signature: str) -> TypeInformation:
    """Return the declared type of keys; keys without one are as pickled values."""
    return parse_signature(signature) if signature else PickledBytesTypeInfo()


def _integer_bits(type_info: TypeInformation) -> int:
    return INTEGER_BITS.get(type_info.kind, 0) if isinstance(type_info, BasicTypeInfo) else 0


def _plain_texts(column: pa.StringArray) -> pa.BinaryArray | None:
    if pc.any(pc.match_substring(column, "\0")).as_py():
        return None
    return pc.binary_join_element_wise(
        pa.scalar(_TEXT_TAG), column.cast(pa.binary()), pa.scalar(_END), pa.scalar(b"")
    )


def _integers(numbers: npt.NDArray[np.int64]) -> pa.BinaryArray:
    """Encode integers all at once: a tag that is their length, then their bytes."""
    negative = numbers < 0
    # The complement of a negative number has the bytes that its length is counted in.
    magnitude = np.where(negative, -(numbers + 1), numbers).astype(np.uint64)
    magnitude = np.where(negative, magnitude + np.uint64(1), magnitude)
    sizes = np.zeros(len(numbers), np.int64)
    for size in range(8):
        sizes += magnitude >= (np.uint64(1) << np.uint64(8 * size))
    ones = np.where(
        sizes == 8,
        np.uint64(0xFFFFFFFFFFFFFFFF),
        (np.uint64(1) << (8 * np.minimum(sizes, 7)).astype(np.uint64)) - np.uint64(1),
    )
    content = np.where(negative, ones - magnitude, magnitude)
    wide = np.empty((len(numbers), 9), np.uint8)
    wide[:, 1:] = content.astype(">u8").view(np.uint8).reshape(-1, 8)
    # The tag goes right before the bytes that count.
    rows = np.arange(len(numbers))
    wide[rows, 8 - sizes] = np.where(negative, 0x0E - sizes, 0x0E + sizes)
    used = np.arange(9) >= (8 - sizes)[:, None]
    offsets = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(sizes + 1, out=offsets[1:])
    data = wide[used].tobytes()
    return pa.Array.from_buffers(
        pa.binary(), len(numbers), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
    )


def groups_of(encoded: pa.BinaryArray, max_parallelism: int) -> npt.NDArray[np.int64]:
    """Return the key groups of encoded keys."""
    return key_groups_of(encoded.to_pylist(), max_parallelism)


def routed(encoded: pa.BinaryArray, groups: npt.NDArray[np.int64]) -> pa.BinaryArray:
    """Return the stored form of keys: key group, length, key."""
    lengths = pc.binary_length(encoded)
    if len(encoded) and pc.max(lengths).as_py() >= LONG_KEY:
        return pa.array(routed_keys(encoded.to_pylist(), groups.tolist()), pa.binary())
    return pc.binary_join_element_wise(
        _fixed(groups.astype(">u2").tobytes(), 2),
        _fixed(lengths.to_numpy().astype(np.uint8).tobytes(), 1),
        encoded,
        pa.scalar(b""),
    )


def _fixed(data: bytes, width: int) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(width), len(data) // width, buffers).cast(pa.binary())


def subtasks_of(
    groups: npt.NDArray[np.int64], max_parallelism: int, parallelism: int
) -> npt.NDArray[np.int32]:
    """Return the subtasks that own key groups."""
    return (groups * parallelism // max_parallelism).astype(np.int32)
