"""The files of a file sink in a directory that driver and tasks share."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar, NamedTuple, Self, cast

from penstock.common.config.locations import STORE_SCHEMES, scheme_of
from penstock.common.contained_paths import path_inside
from penstock.common.new_files import create_file
from penstock.connectors.files.committables import Committable, Entry, PendingPart
from penstock.connectors.files.part_files import NewPiece, Part, PartFiles, PartFormat
from penstock.connectors.files.rolling_policy import Piece
from penstock.connectors.staging.staging_directory import StagingDirectory, is_hidden
from penstock.errors import LostPendingFileError, OccupiedPathError, UnsafeNameError
from penstock.storage import durable_files


class _File(NewPiece):
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self.path = str(path)
        self.file: BinaryIO = path.open("xb")

    def finish(self) -> tuple[int, int]:
        size = self.file.tell()
        self.file.close()
        return size, durable_files.checksum(self._path)

    def discard(self) -> None:
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # of a full disk
            self.file.close()


@dataclass(frozen=True, slots=True)
class LocalPartFiles(PartFiles[PendingPart]):
    """Pieces and pending files in a hidden directory; a pending file is linked to its final name.

    A crash between the link and the removal of the pending file leaves a file with both names or
    only the final one, and both mean that it is committed. A pending file is complete without its
    pieces; only sink state needs those.
    """

    kind: ClassVar[type[Committable]] = PendingPart

    directory: StagingDirectory

    def new_piece(self, name: str) -> NewPiece:
        return _File(self.directory.path(name))

    def remove_staged(self, prefix: str) -> None:
        self.directory.remove_staged(prefix)

    def has(self, path: str) -> bool:
        return scheme_of(path) not in STORE_SCHEMES

    def owns(self, path: str) -> bool:
        return self.directory.owns(Path(path))

    def check_size(self, piece: Piece) -> None:
        durable_files.check_size(self.directory.staged_file(piece.path)[0], piece.size)

    def keep(self, pieces: Sequence[Piece]) -> None:
        _check(pieces)
        self.directory.sync(Path(piece.path) for piece in pieces)

    def prepare(self, parts: Sequence[Part], part_format: PartFormat) -> list[PendingPart]:
        pending = [self._make_pending(part, part_format) for part in parts]
        self.directory.sync(Path(part.pending) for part in pending)
        # Damage that is found before the checkpoint completes loses nothing.
        for part in pending:
            durable_files.check_content(Path(part.pending), part.size, part.crc)
        return pending

    def make_visible(self, part: PendingPart) -> bool:
        pending, final, _ = _PartPaths.of(part, self.directory)
        is_new = self._give_name(part, pending, final)
        # A power loss must not find both names gone.
        durable_files.sync_directory(final.parent)
        # At once: with the pending file, a part that was moved away would appear again.
        pending.unlink(missing_ok=True)
        return is_new

    @staticmethod
    def _give_name(part: PendingPart, pending: Path, final: Path) -> bool:
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

    def finish(self, parts: Sequence[PendingPart]) -> None:
        visible = [_PartPaths.of(part, self.directory) for part in parts]
        for path in (path for part in visible for path in part.pieces):
            # Whatever cannot be removed now is swept later. The part is committed in any case.
            with contextlib.suppress(OSError):
                path.unlink()

    def remove(self, paths: Iterable[str]) -> None:
        self.directory.remove(map(Path, paths))

    def sweep(self, keep: Iterable[Entry]) -> None:
        self.directory.sweep({Path(path) for entry in keep for path in entry.needed})

    def _make_pending(self, part: Part, part_format: PartFormat) -> PendingPart:
        final = cast(Path, part.final)
        pending = self.directory.path(f"{final.name}.pending")
        pending.parent.mkdir(parents=True, exist_ok=True)
        paths = [Path(piece.path) for piece in part.pieces]
        if len(paths) == 1:
            durable_files.check_size(paths[0], part.pieces[0].size)
            durable_files.link_or_copy(paths[0], pending)
            crc = part.pieces[0].crc
        else:
            _check(part.pieces)
            with create_file(pending, "wb") as file:
                part_format.join(paths, file)
            crc = durable_files.checksum(pending)
        # A piece of another job belongs to that job's checkpoint, which may be restored again.
        own = [piece.path for piece in part.pieces if self.owns(piece.path)]
        return PendingPart(
            str(pending),
            str(final),
            pending.stat().st_size,
            pieces=[path for path in own if path not in part.in_state],
            held=[path for path in own if path in part.in_state],
            crc=crc,
        )


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


def _check(pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        durable_files.check_content(Path(piece.path), piece.size, piece.crc)


def _is_copy(path: Path, part: PendingPart) -> bool:
    # FUSE may show two names of one file as two files.
    is_same_size = part.crc is not None and path.stat().st_size == part.size
    return is_same_size and durable_files.checksum(path) == part.crc
