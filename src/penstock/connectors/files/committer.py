"""Committer of a file sink: gives pending files their final names."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from penstock.common.contained_paths import path_inside
from penstock.connectors.contracts.committer import CommitRequest, Committer
from penstock.connectors.files.rolling_policy import Piece
from penstock.connectors.staging.staging_directory import StagingDirectory, is_hidden
from penstock.errors import (
    ConnectorError,
    LostPendingFileError,
    OccupiedPathError,
    UnsafeNameError,
)
from penstock.storage import durable_files


class PendingPart(msgspec.Struct, frozen=True, tag="pending", array_like=True):
    """A committable: a complete hidden file, its final path, and the job's own pieces in it.

    ``pieces`` were in no checkpoint's state and are removed when the part is visible. ``held`` may
    be in the state of older checkpoints, and are removed with the last of those. ``crc`` is the
    CRC-32 of the hidden file, None if an older version made it.
    """

    pending: str
    final: str
    size: int
    pieces: list[str]
    held: list[str] = []
    crc: int | None = None


class UnrolledPieces(msgspec.Struct, frozen=True, tag="unrolled", array_like=True):
    """Sink state: the pieces, in order, of a part that is not complete yet."""

    subtask: int
    bucket: str
    pieces: list[Piece]


encode = msgspec.msgpack.encode
decode_entry = msgspec.msgpack.Decoder(PendingPart | UnrolledPieces).decode
_decode_pending = msgspec.msgpack.Decoder(PendingPart).decode


class PartFileCommitter(Committer):
    """Links pending files to their final names, then removes what they were made of.

    A crash in between leaves a file with both names or only the final one, and both mean that it
    is committed. A pending file is complete without its pieces; only sink state needs those.
    """

    def __init__(self, directory: StagingDirectory) -> None:
        self._directory = directory

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        visible: list[_PartPaths] = []
        for request in requests:
            part = _decode_pending(request.get_committable())
            try:
                paths = _PartPaths.of(part, self._directory)
                is_new = _make_visible(part, paths)
            except ConnectorError as error:
                request.signal_failed_with_known_reason(error)
                continue
            except OSError as error:
                request.signal_failed_with_unknown_reason(error)
                continue
            if not is_new:
                request.signal_already_committed()
            visible.append(paths)
        # Final names are synced before pending ones are removed: a power loss in between must not
        # find both names gone.
        for directory in {part.final.parent for part in visible}:
            durable_files.sync_directory(directory)
        for path in (path for part in visible for path in (part.pending, *part.pieces)):
            # Whatever cannot be removed now is swept later. The part is committed in any case.
            with contextlib.suppress(OSError):
                path.unlink()

    def discard(self, discarded: Sequence[bytes], retained: Sequence[bytes]) -> None:
        needed = {path for entry in map(decode_entry, retained) for path in _needs(entry)}
        pieces = {path for entry in map(decode_entry, discarded) for path in _pieces(entry)}
        self._directory.remove(map(Path, pieces - needed))

    def sweep(self, keep: Sequence[bytes]) -> None:
        kept = map(decode_entry, keep)
        self._directory.sweep({Path(path) for entry in kept for path in _needs(entry)})


class _PartPaths(NamedTuple):
    """The paths that a committable names, all of them below the path of the sink that staged it."""

    pending: Path
    final: Path
    pieces: list[Path]

    @classmethod
    def of(cls, part: PendingPart, directory: StagingDirectory) -> Self:
        pending, base_path = directory.staged_file(part.pending)
        final = path_inside(base_path, part.final)
        if is_hidden(final.relative_to(base_path)):
            raise UnsafeNameError(part.final, str(base_path))
        return cls(pending, final, [directory.staged_file(piece)[0] for piece in part.pieces])


def _make_visible(part: PendingPart, paths: _PartPaths) -> bool:
    """Give a part its final name; false if it had it."""
    pending, final = paths.pending, paths.final
    if not pending.exists():
        if not final.exists():
            raise LostPendingFileError(part.pending, part.final)
        return False
    durable_files.check_content(pending, part.size, part.crc)
    durable_files.make_directory(final.parent)
    try:
        durable_files.give_final_name(pending, final)
    except FileExistsError:
        if not (final.samefile(pending) or _is_copy(final, part)):
            raise OccupiedPathError(part.pending, part.final) from None
        return False
    return True


def _is_copy(path: Path, part: PendingPart) -> bool:
    # FUSE may show two names of one file as two files.
    is_same_size = part.crc is not None and path.stat().st_size == part.size
    return is_same_size and durable_files.checksum(path) == part.crc


def _needs(entry: PendingPart | UnrolledPieces) -> list[str]:
    """Return the files without which a snapshot that holds this cannot be restored."""
    return [entry.pending] if isinstance(entry, PendingPart) else _pieces(entry)


def _pieces(entry: PendingPart | UnrolledPieces) -> list[str]:
    if isinstance(entry, PendingPart):
        return [*entry.pieces, *entry.held]
    return [piece.path for piece in entry.pieces]
