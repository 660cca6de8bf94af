"""Avro's files: a header, then blocks of records, each behind a marker that ends the one before.

A block belongs to the range of bytes in which it starts. Whoever begins in the middle of a file
looks for the next marker; whoever reads a block checks the marker behind it, so that no damaged
one is passed over in silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from penstock.errors import ChangedFileError, UnreadableFileError

__all__ = ["Block", "Header", "blocks_in", "encode_block", "encode_header", "read_header"]

_MAGIC = b"Obj\x01"
_MARKER = 16
_LONGEST_NUMBER = 10
_SEARCHED_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of itself, and how many bytes that takes."""

    schema: Any
    codec: str
    marker: bytes
    size: int


class Block(NamedTuple):
    """Where a block starts, how many records are in it, and their bytes, compressed."""

    start: int
    records: int
    data: bytes


class _Damage(Exception):
    """What is wrong at some place of a file."""


def read_header(file: BinaryIO, path: Path) -> Header:
    """Read the header of a file that was opened at its beginning."""
    try:
        if file.read(len(_MAGIC)) != _MAGIC:
            message = "it is no Avro file"
            raise _Damage(message)
        facts = dict(_facts(file))
        marker = _exactly(file, _MARKER)
        schema = json.loads(facts[b"avro.schema"])
        codec = facts.get(b"avro.codec", b"null").decode()
    except (_Damage, KeyError, ValueError) as error:
        raise UnreadableFileError(str(path), "its header", _reason(error)) from None
    return Header(schema, codec, marker, file.tell())


def blocks_in(file: BinaryIO, path: Path, header: Header, start: int, end: int) -> Iterator[Block]:
    """Give the blocks that start in a range."""
    size = path.stat().st_size
    if size < end:
        raise ChangedFileError(str(path), end, size)
    position = _first_start(file, header, start, end)
    file.seek(position)
    while position < end:
        try:
            block = _read_block(file, header.marker, position, size)
        except _Damage as error:
            where = f"the block at byte {position}"
            raise UnreadableFileError(str(path), where, str(error)) from None
        yield block
        position = file.tell()


def encode_header(schema: Any, codec: str, marker: bytes) -> bytes:
    """Spell a header."""
    facts = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": codec.encode()}
    entries = b"".join(_sized(key) + _sized(value) for key, value in facts.items())
    return _MAGIC + _number(len(facts)) + entries + _number(0) + marker


def encode_block(records: int, data: bytes, marker: bytes) -> bytes:
    """Spell a block."""
    return _number(records) + _sized(data) + marker


def _first_start(file: BinaryIO, header: Header, start: int, end: int) -> int:
    """Find where the first block at or behind ``start`` starts; at the end if none does."""
    if start <= header.size:
        return header.size
    position = start - _MARKER
    file.seek(position)
    data = b""
    while position + _MARKER < end:
        more = file.read(_SEARCHED_AT_ONCE)
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
        message = f"{records} records in {length} bytes cannot be"
        raise _Damage(message)
    data = _exactly(file, length)
    if _exactly(file, _MARKER) != marker:
        message = "there is no marker behind it"
        raise _Damage(message)
    return Block(position, records, data)


def _facts(file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    while count := _read_number(file):
        if count < 0:
            count = -count
            _read_number(file)  # how many bytes they take
        for _ in range(count):
            key = _read_sized(file)
            yield key, _read_sized(file)


def _read_sized(file: BinaryIO) -> bytes:
    length = _read_number(file)
    if length < 0:
        message = f"{length} bytes cannot be"
        raise _Damage(message)
    return _exactly(file, length)


def _exactly(file: BinaryIO, length: int) -> bytes:
    data = file.read(length)
    if len(data) != length:
        message = "the file ends in it"
        raise _Damage(message)
    return data


def _read_number(file: BinaryIO) -> int:
    """Read a number of variable length, smallest bits first, the sign in the lowest."""
    number = shift = 0
    for _ in range(_LONGEST_NUMBER):
        byte = _exactly(file, 1)[0]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1)
        shift += 7
    message = "a number in it is too long"
    raise _Damage(message)


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


def _reason(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)
