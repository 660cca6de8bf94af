"""Rows on their way: small ones in memory, others in files that stay until they are committed."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from penstock.connectors.durable import sync_directory, sync_file
from penstock.errors import CorruptStagedRecordsError, LostStagedFileError
from penstock.ids import is_no_later

__all__ = ["LARGEST_INLINE", "RowFiles", "RowPiece", "RowSpool", "check", "read_blocks"]

LARGEST_INLINE = 32 * 1024
"""As much may travel in an acknowledgement or lie in a checkpoint's metadata."""

_BLOCK = 1 << 20
_LEVELS = 4


class RowPiece(msgspec.Struct, frozen=True, array_like=True):
    """Lines of COPY text: in ``data``, or in a file of this size and checksum.

    The name of the file is relative to a root that whoever reads it knows: a job's directory may
    be moved. Whatever was written without a checksum has none.
    """

    size: int
    data: bytes = b""
    name: str = ""
    crc: int | None = None

    def path(self, root: Path) -> Path:
        """Return where the file is."""
        return root / self.name


def read_blocks(root: Path, pieces: Iterable[RowPiece]) -> Iterator[bytes]:
    """Give what pieces hold, in order, in blocks of at most 1 MiB.

    A damaged file is found out when all of it was given: until then nothing may be committed.
    """
    for piece in pieces:
        if not piece.name:
            yield piece.data
            continue
        check(root, piece)
        crc = 0
        with piece.path(root).open("rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                crc = zlib.crc32(block, crc)
                yield block
        if piece.crc is not None and crc != piece.crc:
            reason = f"their checksum is {crc:08x}, not {piece.crc:08x}"
            raise CorruptStagedRecordsError(str(piece.path(root)), reason)


def check(root: Path, piece: RowPiece) -> None:
    """Refuse a piece whose file is not there in full."""
    if not piece.name:
        return
    path = piece.path(root)
    size = path.stat().st_size if path.exists() else 0
    if size != piece.size:
        raise LostStagedFileError(str(path), piece.size, size)


@dataclass(frozen=True, slots=True)
class RowFiles:
    """The files of one step, in a directory per attempt below its durable one."""

    root: Path
    attempt: str
    """Who looks at them."""

    def new(self, name: str) -> tuple[str, BinaryIO]:
        """Make a file of this attempt, and return its name below the root; it must be new."""
        relative = f"{self.attempt}/{name}.rows"
        path = self.root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        return relative, path.open("xb")

    def sync(self, pieces: Iterable[RowPiece]) -> None:
        """Make pieces survive a power loss."""
        paths = [piece.path(self.root) for piece in pieces if piece.name]
        for path in paths:
            sync_file(path)
        # The tasks may have made the directories above too.
        for directory in {above for path in paths for above in list(path.parents)[:_LEVELS]}:
            sync_directory(directory)

    def forget(self, paths: Iterable[Path]) -> None:
        """Remove files nobody needs; what another job wrote is that job's.

        What cannot be removed now is swept later.
        """
        for path in paths:
            if path.is_relative_to(self.root):
                with contextlib.suppress(OSError):
                    path.unlink()

    def sweep(self, keep: Iterable[Path]) -> None:
        """Remove what this attempt and older ones left but some files.

        What a later attempt stages stays: this one may have been taken over.
        """
        kept = set(keep)
        for place in self.root.glob("*"):
            if not is_no_later(place.name, self.attempt):
                continue
            for path in place.glob("*"):
                if path not in kept:
                    path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                place.rmdir()
        with contextlib.suppress(OSError):
            self.root.rmdir()


class RowSpool:
    """Lines put together to one piece: in memory while they are few, then in a file."""

    def __init__(self, files: RowFiles, name: str) -> None:
        self._files = files
        self._name = name
        self._blocks: list[bytes] = []
        self._file: BinaryIO | None = None
        self._relative = ""
        self._size = 0
        self._crc = 0

    def add(self, data: bytes) -> None:
        """Put lines behind those before."""
        self._size += len(data)
        self._blocks.append(data)
        if self._size <= LARGEST_INLINE:
            return
        if self._file is None:
            self._relative, self._file = self._files.new(self._name)
        for block in self._blocks:
            self._crc = zlib.crc32(block, self._crc)
            self._file.write(block)
        self._blocks.clear()

    def finish(self) -> RowPiece:
        """Give the piece; nothing is added to it any more."""
        if self._file is None:
            return RowPiece(self._size, b"".join(self._blocks))
        self._file.close()
        return RowPiece(self._size, b"", self._relative, self._crc)

    def abort(self) -> None:
        """Throw it away."""
        if self._file is not None:
            self._file.close()
            (self._files.root / self._relative).unlink(missing_ok=True)
