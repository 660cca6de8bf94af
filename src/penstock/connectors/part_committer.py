"""Finishing the files of a file sink: pending files get their final names."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.connectors.committer import CommitRequest, Committer
from penstock.connectors.durable import make_directory, show_under, sync_directory
from penstock.connectors.rolling import Piece
from penstock.connectors.staging_area import StagingArea
from penstock.errors import (
    ConnectorError,
    LostPendingFileError,
    LostStagedFileError,
    OccupiedPathError,
)

__all__ = ["PartFileCommitter", "PendingPart", "UnrolledPieces", "decode_kept", "encode"]


class PendingPart(msgspec.Struct, frozen=True, tag="pending", array_like=True):
    """A committable: a complete hidden file, its final name, and the pieces it was made of.

    The pieces are the job's own; they go when the part is visible.
    """

    pending: str
    final: str
    size: int
    pieces: list[str]


class UnrolledPieces(msgspec.Struct, frozen=True, tag="unrolled", array_like=True):
    """Sink state: the pieces, in order, of a part that is not complete yet."""

    subtask: int
    bucket: str
    pieces: list[Piece]


encode = msgspec.msgpack.encode
decode_kept = msgspec.msgpack.Decoder(PendingPart | UnrolledPieces).decode
_decode_pending = msgspec.msgpack.Decoder(PendingPart).decode


class PartFileCommitter(Committer):
    """Links pending files to their final names, then forgets where they came from.

    A crash in between leaves a file with both names or under the final name only, and both mean
    that it is committed.
    """

    def __init__(self, area: StagingArea) -> None:
        self._area = area

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        visible: list[PendingPart] = []
        for request in requests:
            part = _decode_pending(request.get_committable())
            try:
                is_new = _show(part)
            except ConnectorError as error:
                request.signal_failed_with_known_reason(error)
                continue
            except OSError as error:
                request.signal_failed_with_unknown_reason(error)
                continue
            if not is_new:
                request.signal_already_committed()
            visible.append(part)
        # Final names first: a power loss must not find both names gone.
        for directory in {Path(part.final).parent for part in visible}:
            sync_directory(directory)
        for part in visible:
            _forget(part)

    def sweep(self, keep: Sequence[bytes]) -> None:
        paths: set[Path] = set()
        for kept in map(decode_kept, keep):
            if isinstance(kept, PendingPart):
                paths.update(map(Path, (kept.pending, *kept.pieces)))
            else:
                paths.update(Path(piece.path) for piece in kept.pieces)
        self._area.sweep(paths)


def _show(part: PendingPart) -> bool:
    """Make a part visible; false if it was."""
    pending, final = Path(part.pending), Path(part.final)
    if not pending.exists():
        if not final.exists():
            raise LostPendingFileError(part.pending, part.final)
        return False
    size = pending.stat().st_size
    if size != part.size:
        raise LostStagedFileError(part.pending, part.size, size)
    make_directory(final.parent)
    try:
        show_under(pending, final)
    except FileExistsError:
        if not final.samefile(pending):
            raise OccupiedPathError(part.pending, part.final) from None
        return False
    return True


def _forget(part: PendingPart) -> None:
    for path in (part.pending, *part.pieces):
        # What cannot be removed now is swept later; the part is committed all the same.
        with contextlib.suppress(OSError):
            Path(path).unlink()
