"""Records that were published and not yet cut off, by subtask and in order."""

from __future__ import annotations

from collections import defaultdict
from typing import BinaryIO
from uuid import uuid4

from penstock.connectors.kafka.staged_part import Piece
from penstock.connectors.staging_area import StagingArea

__all__ = ["LARGEST_INLINE", "PendingRecords"]

LARGEST_INLINE = 32 * 1024
"""What a part may take in the metadata of a checkpoint; more lies in files."""


class _Spool:
    """Small pieces of one subtask put together: in memory, then in a file.

    The file belongs to no checkpoint until its piece is in one; before that it is swept.
    """

    def __init__(self, area: StagingArea) -> None:
        self._area = area
        self._data = bytearray()
        self._file: BinaryIO | None = None
        self._name = ""
        self._size = 0
        self._records = 0

    def add(self, piece: Piece) -> None:
        self._size += piece.size
        self._records += piece.records
        self._data += piece.inline
        if self._size > LARGEST_INLINE:
            if self._file is None:
                self._file = self._opened()
            self._file.write(self._data)
            self._data.clear()

    def finish(self) -> Piece:
        self.close()
        return Piece(self._name, self._size, self._records, bytes(self._data))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _opened(self) -> BinaryIO:
        path = self._area.piece(self._area.attempt, f"spool-{uuid4().hex}", 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._name = str(path.relative_to(self._area.root))
        return path.open("xb")


class PendingRecords:
    """Collects what micro-batches staged until a barrier cuts it off.

    However long that takes, it holds only a little of each subtask in memory.
    """

    def __init__(self, area: StagingArea) -> None:
        self._area = area
        self._pieces: defaultdict[int, list[Piece | _Spool]] = defaultdict(list)

    def add(self, subtask: int, piece: Piece) -> None:
        """Take what a subtask staged."""
        pieces = self._pieces[subtask]
        if piece.name:
            pieces.append(piece)
            return
        if not pieces or not isinstance(pieces[-1], _Spool):
            pieces.append(_Spool(self._area))
        spool = pieces[-1]
        assert isinstance(spool, _Spool)
        spool.add(piece)

    def cut(self) -> dict[int, list[Piece]]:
        """Give what was added since the last cut, by subtask; nothing is added to it any more.

        No two pieces that are not in files follow each other.
        """
        cut = {
            subtask: [p.finish() if isinstance(p, _Spool) else p for p in pieces]
            for subtask, pieces in sorted(self._pieces.items())
        }
        self._pieces.clear()
        return cut

    def close(self) -> None:
        """Close files that are open; they are nobody's."""
        for pieces in self._pieces.values():
            for piece in pieces:
                if isinstance(piece, _Spool):
                    piece.close()
