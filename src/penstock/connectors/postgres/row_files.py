"""Rows on their way: small ones in memory, others in files that stay until they are committed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.connectors.durable import sync_directory, sync_file
from penstock.errors import LostStagedFileError
from penstock.ids import is_no_later

__all__ = ["LARGEST_INLINE", "RowFiles", "RowPiece", "check", "read_blocks"]

LARGEST_INLINE = 32 * 1024
"""As much may travel in an acknowledgement or lie in a checkpoint's metadata."""

_BLOCK = 1 << 20
_LEVELS = 4


class RowPiece(msgspec.Struct, frozen=True, array_like=True):
    """Lines of COPY text: in ``data``, or in a file of this size."""

    size: int
    data: bytes = b""
    path: str = ""


def read_blocks(pieces: Iterable[RowPiece]) -> Iterator[bytes]:
    """Give what pieces hold, in order, in blocks of at most 1 MiB."""
    for piece in pieces:
        if not piece.path:
            yield piece.data
            continue
        check(piece)
        with Path(piece.path).open("rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                yield block


def check(piece: RowPiece) -> None:
    """Refuse a piece whose file is not what was written."""
    path = Path(piece.path)
    size = path.stat().st_size if path.exists() else 0
    if piece.path and size != piece.size:
        raise LostStagedFileError(piece.path, piece.size, size)


@dataclass(frozen=True, slots=True)
class RowFiles:
    """The files of one step, in a directory per attempt below its durable one."""

    work_dir: Path
    attempt: str
    """Who looks at them."""

    @property
    def mine(self) -> Path:
        """The directory of this attempt."""
        return self.work_dir / self.attempt

    def piece(self, name: str) -> Path:
        """Name a file of this attempt, and make its directory; the name must be unique in it."""
        self.mine.mkdir(parents=True, exist_ok=True)
        return self.mine / f"{name}.rows"

    def sync(self, pieces: Iterable[RowPiece]) -> None:
        """Make pieces survive a power loss."""
        paths = [Path(piece.path) for piece in pieces if piece.path]
        for path in paths:
            sync_file(path)
        # The tasks may have made the directories above too.
        for directory in {above for path in paths for above in list(path.parents)[:_LEVELS]}:
            sync_directory(directory)

    def forget(self, pieces: Iterable[RowPiece]) -> None:
        """Remove files nobody needs; what another job wrote is that job's.

        What cannot be removed now is swept later.
        """
        for piece in pieces:
            if piece.path and Path(piece.path).is_relative_to(self.work_dir):
                with contextlib.suppress(OSError):
                    Path(piece.path).unlink()

    def sweep(self, keep: Iterable[RowPiece]) -> None:
        """Remove what this attempt and older ones left but some files.

        What a later attempt stages stays: this one may have been taken over.
        """
        kept = {piece.path for piece in keep}
        for place in self.work_dir.glob("*"):
            if not is_no_later(place.name, self.attempt):
                continue
            for path in place.glob("*"):
                if str(path) not in kept:
                    path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                place.rmdir()
        with contextlib.suppress(OSError):
            self.work_dir.rmdir()
