"""Deltas and bases: the changes of a micro-batch, and a whole state, as files.

Both have one format: a header, then blocks, then an empty block. A block is its length, its
MessagePack body and the CRC-32 of all bytes before that sum, so the last four bytes verify the
whole file, and the file's CRC-32 can be checked without knowing the format. A delta holds puts
sorted by key and deletes; a base holds puts only.
"""

from __future__ import annotations

import io
import mmap
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple
from zlib import crc32

import msgspec

from penstock.errors import CorruptStateError

Entry = tuple[bytes, bytes]

ENTRIES_PER_BLOCK = 1 << 14
BYTES_PER_BLOCK = 1 << 22

_MAGIC = b"PNSK"
_FORMAT = 1
_HEADER = struct.Struct(">4sBxxxQ")
_U32 = struct.Struct(">I")


class Block(msgspec.Struct, array_like=True, frozen=True):
    """A part of a delta or base: keys with their values, and deleted keys."""

    keys: list[bytes]
    values: list[bytes]
    deletes: list[bytes]


@dataclass(slots=True)
class Delta:
    """The changes of one micro-batch: keys in order, their values, and keys to delete."""

    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    deletes: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.keys) + len(self.deletes)

    def extend(self, later: Delta) -> None:
        """Append changes whose keys all come after those of this delta."""
        self.keys += later.keys
        self.values += later.values
        self.deletes += later.deletes

    def put_under(self, changes: dict[bytes, bytes | None]) -> None:
        """Add changes (None for a delete) for keys that this delta does not change itself."""
        for key in (*self.keys, *self.deletes):
            changes.pop(key, None)
        self.deletes += [key for key, value in changes.items() if value is None]
        puts = [(key, value) for key, value in changes.items() if value is not None]
        if puts:
            merged = sorted([*zip(self.keys, self.values, strict=True), *puts])
            self.keys = [key for key, _ in merged]
            self.values = [value for _, value in merged]


@dataclass(frozen=True, slots=True)
class Sums:
    """Size and CRC-32 of a written file."""

    size: int
    crc: int


_pack = msgspec.msgpack.Encoder().encode
decode_block = msgspec.msgpack.Decoder(Block).decode


def encode_delta(delta: Delta, version: int = 0) -> bytes:
    """Return the bytes of a delta's file."""
    buffer = io.BytesIO()
    write_blocks(buffer, version, blocks_of(delta))
    return buffer.getvalue()


def decode_delta(data: bytes, path: Path | str = "", version: int | None = None) -> Delta:
    """Return the delta in these bytes; ``path`` is for error messages."""
    delta = Delta()
    for block in read_blocks(io.BytesIO(data), path, version):
        delta.keys += block.keys
        delta.values += block.values
        delta.deletes += block.deletes
    return delta


def blocks_of(delta: Delta) -> Iterator[Block]:
    """Split a delta into blocks."""
    for start in range(0, len(delta.keys), ENTRIES_PER_BLOCK):
        stop = start + ENTRIES_PER_BLOCK
        yield from _bounded(Block(delta.keys[start:stop], delta.values[start:stop], []))
    for start in range(0, len(delta.deletes), ENTRIES_PER_BLOCK):
        yield Block([], [], delta.deletes[start : start + ENTRIES_PER_BLOCK])


def blocks_of_entries(entries: Iterable[Entry]) -> Iterator[Block]:
    """Split sorted entries into blocks, holding one block at a time."""
    entries = iter(entries)
    while chunk := list(islice(entries, ENTRIES_PER_BLOCK)):
        yield from _bounded(Block([key for key, _ in chunk], [value for _, value in chunk], []))


def _bounded(block: Block) -> Iterator[Block]:
    """Halve a block until it is small enough."""
    half = len(block.keys) // 2
    if not half or sum(map(len, block.values)) <= BYTES_PER_BLOCK:
        yield block
        return
    yield from _bounded(Block(block.keys[:half], block.values[:half], []))
    yield from _bounded(Block(block.keys[half:], block.values[half:], []))


def write_blocks(file: IO[bytes], version: int, blocks: Iterable[Block]) -> Sums:
    """Write a file of blocks; return its size and checksum."""
    header = _HEADER.pack(_MAGIC, _FORMAT, version)
    file.write(header)
    crc, size = crc32(header), len(header)
    for body in _bodies(blocks):
        length = _U32.pack(len(body))
        crc = crc32(body, crc32(length, crc))
        sum_so_far = _U32.pack(crc)
        crc = crc32(sum_so_far, crc)
        file.write(length)
        file.write(body)
        file.write(sum_so_far)
        size += len(body) + 8
    return Sums(size, crc)


def _bodies(blocks: Iterable[Block]) -> Iterator[bytes]:
    for block in blocks:
        yield _pack(block)
    yield b""


def read_blocks(
    file: IO[bytes], path: Path | str, version: int | None = None, sums: Sums | None = None
) -> Iterator[Block]:
    """Read blocks one by one, each verified before it is returned.

    The file as a whole is verified only when the iterator ends: the caller must be able to undo
    what it does with the blocks until then.

    Raises:
        CorruptStateError: if the bytes are not those that were written.
    """
    header = file.read(_HEADER.size)
    _check_header(header, path, version)
    crc, size = crc32(header), len(header)
    while True:
        length = file.read(4)
        body = file.read(_U32.unpack(length)[0]) if len(length) == 4 else b""
        found = file.read(4)
        crc = crc32(body, crc32(length, crc))
        if len(found) != 4:
            raise CorruptStateError(str(path), f"it is truncated after {size} bytes")
        if _U32.unpack(found)[0] != crc:
            raise CorruptStateError(str(path), f"checksum mismatch after byte {size}")
        crc = crc32(found, crc)
        size += len(body) + 8
        if not body:
            break
        yield decode_block(body)
    _check_end(file, path, Sums(size, crc), sums)


class BlockPlace(NamedTuple):
    """Where the body of a block is in a file."""

    first_key: bytes
    """Empty if the block has only deletes."""
    start: int
    stop: int


def block_places(data: bytes | mmap.mmap) -> Iterator[BlockPlace]:
    """Iterate over the blocks of a file that was verified, without decoding them."""
    at = _HEADER.size
    while length := _U32.unpack_from(data, at)[0]:
        start = at + 4
        yield BlockPlace(_first_key(data, start), start, start + length)
        at = start + length + 4


def _first_key(data: bytes | mmap.mmap, start: int) -> bytes:
    """Return the first key of a block that begins there, in MessagePack: an array of arrays."""
    view = memoryview(data)
    if view[start + 1] == 0x90:
        return b""
    # The outer array, then the array of keys, which is not empty, then its first item.
    at = start + 1 + (1 if view[start + 1] >> 4 == 9 else 3 if view[start + 1] == 0xDC else 5)
    size = 1 << (view[at] - 0xC4)  # of the length of a byte string
    stop = at + 1 + size
    return bytes(view[stop : stop + int.from_bytes(view[at + 1 : stop], "big")])


def _check_header(header: bytes, path: Path | str, version: int | None) -> None:
    if len(header) != _HEADER.size:
        raise CorruptStateError(str(path), f"it is truncated after {len(header)} bytes")
    magic, file_format, found_version = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise CorruptStateError(str(path), "it is not a state file")
    if file_format != _FORMAT:
        raise CorruptStateError(str(path), f"its format {file_format} is unknown")
    if version is not None and found_version != version:
        raise CorruptStateError(str(path), f"it holds version {found_version}, not {version}")


def _check_end(file: IO[bytes], path: Path | str, found: Sums, wanted: Sums | None) -> None:
    if file.read(1):
        raise CorruptStateError(str(path), f"there are bytes after its end at {found.size}")
    if wanted is not None and found != wanted:
        raise CorruptStateError(
            str(path),
            f"it has size {found.size} and checksum {found.crc:08x}, "
            f"not {wanted.size} and {wanted.crc:08x}: it is another file",
        )
