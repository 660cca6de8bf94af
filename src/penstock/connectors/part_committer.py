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
    """A committable: a complete hidden file, its final name, and the job's own pieces in it.

    ``pieces`` were in no cut's state; they go when the part is visible. ``held`` may be in the
    state of older checkpoints; they go with the last of those.
    """

    pending: str
    final: str
    size: int
    pieces: list[str]
    held: list[str] = []


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
    that it is committed. A pending file is complete without its pieces, so only state needs those.
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

    def discard(self, gone: Sequence[bytes], kept: Sequence[bytes]) -> None:
        needed = {path for entry in map(decode_kept, kept) for path in _needs(entry)}
        for path in {path for entry in map(decode_kept, gone) for path in _pieces(entry)} - needed:
            # Pieces of another job are that job's.
            if Path(path).is_relative_to(self._area.root):
                _remove(path)

    def sweep(self, keep: Sequence[bytes]) -> None:
        self._area.sweep({Path(path) for kept in map(decode_kept, keep) for path in _needs(kept)})


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


def _needs(kept: PendingPart | UnrolledPieces) -> list[str]:
    """Tell which files a snapshot with this in it cannot be restored without."""
    return [kept.pending] if isinstance(kept, PendingPart) else _pieces(kept)


def _pieces(kept: PendingPart | UnrolledPieces) -> list[str]:
    if isinstance(kept, PendingPart):
        return [*kept.pieces, *kept.held]
    return [piece.path for piece in kept.pieces]


def _forget(part: PendingPart) -> None:
    for path in (part.pending, *part.pieces):
        _remove(path)


def _remove(path: str) -> None:
    # What cannot be removed now is swept later; the part is committed all the same.
    with contextlib.suppress(OSError):
        Path(path).unlink()
