"""Avro's container files: a header, then compressed blocks of records, each with a sync marker.

A block belongs to the range of bytes in which it starts. A reader that begins in the middle of a
file searches for the next marker, and checks the marker after each block, so that a damaged block
is never skipped silently.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import pyarrow as pa

from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.formats.reader_format import check_length
from penstock.connectors.formats.text_values import reject
from penstock.errors import UnreadableFileError
from penstock.types.traversal import identity

_RAW_DEFLATE = -15
_MAGIC = b"Obj\x01"
_MARKER = 16
_MAX_NUMBER_BYTES = 10
_SEARCH_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file; ``size`` is its own length in bytes."""

    schema: Any
    codec: str
    marker: bytes
    size: int


class Block(NamedTuple):
    """Where a block starts, its number of records, and their compressed bytes."""

    start: int
    records: int
    data: bytes


def read_header(file: BinaryIO, path: Path) -> Header:
    """Read the header of a file that is opened at its beginning."""
    try:
        if file.read(len(_MAGIC)) != _MAGIC:
            reject("it is not an Avro file")
        metadata = dict(_metadata(file))
        marker = _read_exactly(file, _MARKER)
        schema = json.loads(metadata[b"avro.schema"])
        codec = metadata.get(b"avro.codec", b"null").decode()
    except (KeyError, ValueError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise UnreadableFileError(str(path), "its header", reason) from None
    return Header(schema, codec, marker, file.tell())


def blocks_in(file: BinaryIO, path: Path, header: Header, start: int, end: int) -> Iterator[Block]:
    """Yield the blocks that start in a range."""
    size = check_length(path, end)
    position = _first_start(file, header, start, end)
    file.seek(position)
    while position < end:
        try:
            block = _read_block(file, header.marker, position, size)
        except ValueError as error:
            where = f"the block at byte {position}"
            raise UnreadableFileError(str(path), where, str(error)) from None
        yield block
        position = file.tell()


def encode_header(schema: Any, codec: str, marker: bytes) -> bytes:
    """Encode a header."""
    metadata = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": codec.encode()}
    entries = b"".join(_sized(key) + _sized(value) for key, value in metadata.items())
    return _MAGIC + _number(len(metadata)) + entries + _number(0) + marker


def encode_block(records: int, data: bytes, marker: bytes) -> bytes:
    """Encode a block."""
    return _number(records) + _sized(data) + marker


def _first_start(file: BinaryIO, header: Header, start: int, end: int) -> int:
    """Return where the first block at or after ``start`` starts; ``end`` if none does."""
    if start <= header.size:
        return header.size
    position = start - _MARKER
    file.seek(position)
    data = b""
    while position + _MARKER < end:
        more = file.read(_SEARCH_BYTES)
        if not more:
            return end
        data += more
        found = data.find(header.marker)
        if found >= 0:
            return position + found + _MARKER
        position += max(0, len(data) - _MARKER + 1)
        data = data[-_MARKER + 1 :]
    return end


def _read_block(file: BinaryIO, marker: bytes, position: int, size: int) -> Block:
    records, length = _read_number(file), _read_number(file)
    if records < 0 or not 0 <= length <= size - position:
        reject(f"{records} records in {length} bytes are impossible")
    data = _read_exactly(file, length)
    if _read_exactly(file, _MARKER) != marker:
        reject("it is not followed by the sync marker")
    return Block(position, records, data)


def _metadata(file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    while count := _read_number(file):
        if count < 0:
            count = -count
            _read_number(file)  # their length in bytes
        for _ in range(count):
            key = _read_sized(file)
            yield key, _read_sized(file)


def _read_sized(file: BinaryIO) -> bytes:
    length = _read_number(file)
    if length < 0:
        reject(f"a length of {length} bytes is impossible")
    return _read_exactly(file, length)


def _read_exactly(file: BinaryIO, length: int) -> bytes:
    data = file.read(length)
    if len(data) != length:
        reject("the file ends inside it")
    return data


def _read_number(file: BinaryIO) -> int:
    """Read a zigzag-encoded number of variable length."""
    number = _read_unsigned(file)
    return (number >> 1) ^ -(number & 1)


def _read_unsigned(file: BinaryIO) -> int:
    """Read a number of variable length, lowest bits first."""
    number = 0
    for shift in range(0, 7 * _MAX_NUMBER_BYTES, 7):
        byte = _read_exactly(file, 1)[0]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
    return reject("a number in it is too long")


def _number(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _sized(data: bytes) -> bytes:
    return _number(len(data)) + data


def _snappy(data: bytes) -> bytes:
    compressed = cast(bytes, pa.compress(data, "snappy", asbytes=True))
    return compressed + zlib.crc32(data).to_bytes(4, "big")


def _unsnappy(data: bytes) -> bytes:
    compressed, checksum = data[:-4], data[-4:]
    # A snappy block begins with its uncompressed length.
    length = _read_unsigned(io.BytesIO(compressed))
    plain = cast(bytes, pa.decompress(compressed, length, "snappy", asbytes=True))
    if zlib.crc32(plain).to_bytes(4, "big") != checksum:
        reject("its checksum does not match")
    return plain


def _unzstandard(data: bytes) -> bytes:
    return cast(bytes, pa.input_stream(pa.py_buffer(data), compression="zstd").read())


_CODECS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "null": (identity, identity),
    "deflate": (
        partial(zlib.compress, wbits=_RAW_DEFLATE),
        partial(zlib.decompress, wbits=_RAW_DEFLATE),
    ),
    "snappy": (_snappy, _unsnappy),
    "zstandard": (partial(pa.compress, codec="zstd", asbytes=True), _unzstandard),
    "bzip2": (bz2.compress, bz2.decompress),
    "xz": (lzma.compress, lzma.decompress),
}


def compressor(codec: str) -> Callable[[bytes], bytes]:
    """Return what compresses a block; reject an unknown codec."""
    known = ", ".join(_CODECS)
    require(codec in _CODECS, f"an Avro codec is one of {known}; got {codec!r}")
    return _CODECS[codec][0]


def decompress(codec: str, data: bytes) -> bytes:
    """Decompress a block.

    Raises:
        ValueError: if the codec is unknown, or the data were not compressed with it.
    """
    if codec not in _CODECS:
        reject(f"its codec {codec!r} is none of {', '.join(_CODECS)}")
    try:
        return _CODECS[codec][1](data)
    except (zlib.error, lzma.LZMAError, OSError, EOFError, pa.ArrowException) as error:
        message = f"it is not {codec}: {error}"
        raise ValueError(message) from None
