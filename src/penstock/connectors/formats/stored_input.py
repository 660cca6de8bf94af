"""Reads a file in a store as if it were on a disk: any bytes, in any order."""

from __future__ import annotations

import io

from penstock.common.storage_url import StorageUrl
from penstock.storage.contract import StoredFile
from penstock.storage.storages import storage_at

_LEAST_BYTES = 256 << 10
_MOST_BYTES = 8 << 20


def stored_file(url: StorageUrl) -> StoredFile | None:
    """Return what is known of a file in a store, None if it does not exist."""
    return storage_at(url.parent).stat(url.name) if url.parts else None


class StoredInput(io.RawIOBase):
    """A file in a store, of which a few MiB are in memory.

    Each request asks for more than the one before, as long as the file is read from its beginning
    to its end, and otherwise for little more than what is read.
    """

    def __init__(self, url: StorageUrl, size: int) -> None:
        self._storage = storage_at(url.parent)
        self._name = url.name
        self._size = size
        self._position = 0
        self._window = b""
        self._begin = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position; nothing is read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Read some bytes, at most as many as there is space for; 0 at the end."""
        wanted = min(len(buffer), self._size - self._position)
        if wanted <= 0:
            return 0
        if not self._begin <= self._position < self._begin + len(self._window):
            self._fetch(wanted)
        offset = self._position - self._begin
        block = self._window[offset : offset + wanted]
        buffer[: len(block)] = block
        self._position += len(block)
        return len(block)

    def _fetch(self, wanted: int) -> None:
        is_next = self._position == self._begin + len(self._window)
        ahead = min(2 * len(self._window), _MOST_BYTES) if is_next else 0
        length = min(max(wanted, ahead, _LEAST_BYTES), self._size - self._position)
        self._window = b""  # two of them need not be in memory
        self._begin = self._position
        # Shorter, if the file was replaced: its reader finds that out when it compares.
        self._window = b"".join(self._storage.stream(self._name, self._begin, length))
