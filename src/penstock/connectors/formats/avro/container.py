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
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NamedTuple, cast

import pyarrow as pa

from penstock.common.storage_url import Location
from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.formats.avro.schema_checks import reject_empty_items
from penstock.connectors.formats.text_values import reject
from penstock.errors import UnreadableFileError
from penstock.types.traversal import identity

_RAW_DEFLATE = -15
_MAGIC = b"Obj\x01"
_MARKER = 16
_MAX_NUMBER_BYTES = 10
_SEARCH_BYTES = 1 << 18
_MAX_HEADER_BYTES = 16 << 20
_PIECE_BYTES = 1 << 20
UNLIMITED = sys.maxsize - 1


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file; ``size`` is its own length in bytes."""

    schema: Any
    codec: str
    marker: bytes
    size: int


class BlockTooLargeError(ValueError):
    """A block above the limit, found before all of it was in memory."""


class Block(NamedTuple):
    """Where a block starts, its number of records, and their compressed bytes."""

    start: int
    records: int
    data: bytes


def read_header(file: BinaryIO, path: Location) -> Header:
    """Read the header of a file that is opened at its beginning."""
    size = _size(file)
    try:
        if file.read(len(_MAGIC)) != _MAGIC:
            reject("it is not an Avro file")
        metadata = dict(_metadata(file, min(size, _MAX_HEADER_BYTES)))
        marker = _read_exactly(file, _MARKER)
        schema = json.loads(metadata[b"avro.schema"])
        codec = metadata.get(b"avro.codec", b"null").decode()
        reject_empty_items(schema)
    except (KeyError, ValueError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise UnreadableFileError(str(path), "its header", reason) from None
    return Header(schema, codec, marker, file.tell())


def blocks_in(
    file: BinaryIO,
    path: Location,
    header: Header,
    start: int,
    end: int,
    max_bytes: int = UNLIMITED,
) -> Iterator[Block]:
    """Yield the blocks that start in a range; one above ``max_bytes`` raises an error."""
    size = _size(file)
    position = _first_start(file, header, start, end)
    file.seek(position)
    while position < end:
        try:
            block = _read_block(file, header.marker, position, size, max_bytes)
        except BlockTooLargeError:
            raise
        except ValueError as error:
            where = f"the block at byte {position}"
            raise UnreadableFileError(str(path), where, str(error)) from None
        yield block
        position = file.tell()


def _size(file: BinaryIO) -> int:
    position = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(position)
    return size


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


def _read_block(file: BinaryIO, marker: bytes, position: int, size: int, max_bytes: int) -> Block:
    records, length = _read_number(file), _read_number(file)
    if records < 0 or not 0 <= length <= size - position:
        reject(f"{records} records in {length} bytes are impossible")
    if length > max_bytes:
        raise BlockTooLargeError(position)
    data = _read_exactly(file, length)
    if _read_exactly(file, _MARKER) != marker:
        reject("it is not followed by the sync marker")
    return Block(position, records, data)


def _metadata(file: BinaryIO, max_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    while count := _read_number(file):
        if count < 0:
            count = -count
            _read_number(file)  # their length in bytes
        for _ in range(count):
            key = _read_sized(file, max_bytes)
            yield key, _read_sized(file, max_bytes)


def _read_sized(file: BinaryIO, max_bytes: int) -> bytes:
    length = _read_number(file)
    if not 0 <= length <= max_bytes:
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


def _unsnappy(data: bytes, max_bytes: int) -> bytes:
    compressed, checksum = data[:-4], data[-4:]
    # A snappy block begins with its uncompressed length.
    length = _read_unsigned(io.BytesIO(compressed))
    if length > max_bytes:
        raise BlockTooLargeError(length)
    plain = cast(bytes, pa.decompress(compressed, length, "snappy", asbytes=True))
    if zlib.crc32(plain).to_bytes(4, "big") != checksum:
        reject("its checksum does not match")
    return plain


def _unzstandard(data: bytes, max_bytes: int) -> bytes:
    pieces, length = [], 0
    stream = pa.input_stream(pa.py_buffer(data), compression="zstd")
    while length <= max_bytes and (piece := stream.read(_PIECE_BYTES)):
        pieces.append(piece)
        length += len(piece)
    return b"".join(pieces)


def _inflate(data: bytes, max_bytes: int) -> bytes:
    stream = zlib.decompressobj(_RAW_DEFLATE)
    # One byte more than allowed tells a block at the limit from one above it.
    plain = stream.decompress(data, max_bytes + 1)
    if len(plain) <= max_bytes and not stream.eof:
        reject("the compressed data are incomplete")
    return plain


def _streamed(new: Callable[[], Any], data: bytes, max_bytes: int) -> bytes:
    """Decompress one or more streams with the decompressors of bz2 and lzma."""
    plain, left = b"", max_bytes + 1
    while data and left:
        stream = new()
        more = stream.decompress(data, left)
        plain, left = plain + more, left - len(more)
        if left and not stream.eof:
            reject("the compressed data are incomplete")
        data = stream.unused_data
    return plain


_CODECS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]] = {
    "null": (identity, lambda data, max_bytes: data),
    "deflate": (partial(zlib.compress, wbits=_RAW_DEFLATE), _inflate),
    "snappy": (_snappy, _unsnappy),
    "zstandard": (partial(pa.compress, codec="zstd", asbytes=True), _unzstandard),
    "bzip2": (bz2.compress, partial(_streamed, bz2.BZ2Decompressor)),
    "xz": (lzma.compress, partial(_streamed, partial(lzma.LZMADecompressor, memlimit=1 << 30))),
}


def compressor(codec: str) -> Callable[[bytes], bytes]:
    """Return what compresses a block; reject an unknown codec."""
    known = ", ".join(_CODECS)
    require(codec in _CODECS, f"an Avro codec is one of {known}; got {codec!r}")
    return _CODECS[codec][0]


def decompress(codec: str, data: bytes, max_bytes: int = UNLIMITED) -> bytes:
    """Decompress a block, at most ``max_bytes`` of it.

    Raises:
        BlockTooLargeError: if it is larger than that.
        ValueError: if the codec is unknown, or the data were not compressed with it.
    """
    if codec not in _CODECS:
        reject(f"its codec {codec!r} is none of {', '.join(_CODECS)}")
    try:
        plain = _CODECS[codec][1](data, max_bytes)
    except (zlib.error, lzma.LZMAError, OSError, EOFError, pa.ArrowException) as error:
        message = f"it is not {codec}: {error}"
        raise ValueError(message) from None
    if len(plain) > max_bytes:
        raise BlockTooLargeError(max_bytes)
    return plain
