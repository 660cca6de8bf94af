"""Reads and checks the objects that a part file is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from zlib import crc32

from penstock.common.storage_url import StorageUrl
from penstock.connectors.files.rolling_policy import Piece
from penstock.errors import CorruptStagedRecordsError, LostStagedFileError
from penstock.storage.contract import Storage, StoredFile
from penstock.storage.storages import storage_at


def storage_of(url: StorageUrl) -> tuple[Storage, str]:
    """Return the storage of a whole bucket or file system, and the path of a file in it."""
    return storage_at(replace(url, parts=())), url.path


def facts_of(url: StorageUrl) -> StoredFile | None:
    """Return what is known of an object, None if there is none."""
    storage, path = storage_of(url)
    return storage.stat(path)


def size_of(url: StorageUrl) -> int | None:
    """Return the size of an object, None if there is none."""
    found = facts_of(url)
    return None if found is None else found.size


def check_size(url: StorageUrl, size: int) -> None:
    """Raise `LostStagedFileError` unless an object is there and has this many bytes."""
    found = size_of(url) or 0
    if found != size:
        raise LostStagedFileError(str(url), size, found)


def check_crc(url: StorageUrl, expected: int | None, found: int) -> None:
    """Raise `CorruptStagedRecordsError` if a CRC-32 is not the expected one."""
    if expected is not None and found != expected:
        reason = f"its checksum is {found:08x}, not {expected:08x}"
        raise CorruptStagedRecordsError(str(url), reason)


def checked_content(sources: Iterable[tuple[StorageUrl, Piece]]) -> Iterator[bytes]:
    """Yield the contents of objects, one after the other; raise before the end if one is wrong."""
    for url, piece in sources:
        crc = size = 0
        storage, path = storage_of(url)
        try:
            for block in storage.stream(path):
                crc, size = crc32(block, crc), size + len(block)
                yield block
        except FileNotFoundError:
            raise LostStagedFileError(str(url), piece.size, 0) from None
        if size != piece.size:
            raise LostStagedFileError(str(url), piece.size, size)
        check_crc(url, piece.crc, crc)


def has_content(url: StorageUrl, sources: Iterable[Piece]) -> bool:
    """Whether an object has the contents of others, one after the other, by their checksums."""
    pieces = list(sources)
    if size_of(url) != sum(piece.size for piece in pieces):
        return False
    storage, path = storage_of(url)
    with storage.open(path) as file:
        for piece in pieces:
            crc, left = 0, piece.size
            while left and (block := file.read(min(left, 1 << 20))):
                crc, left = crc32(block, crc), left - len(block)
            if left or (piece.crc is not None and crc != piece.crc):
                return False
    return True
