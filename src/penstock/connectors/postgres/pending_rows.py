"""Rows that were published and not yet cut off, by subtask and in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import BinaryIO
from uuid import uuid4

from penstock.connectors.postgres.loading import RowBatch
from penstock.connectors.postgres.row_files import LARGEST_INLINE, RowFiles, RowPiece
from penstock.connectors.postgres.staged_rows import StagedRows

__all__ = ["PendingRows"]


class _Spool:
    """Small pieces of one subtask put together: in memory, then in a file."""

    def __init__(self, files: RowFiles, name: str) -> None:
        self._files = files
        self._name = name
        self._blocks: list[bytes] = []
        self._file: BinaryIO | None = None
        self._path = ""
        self._size = 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if self._file is None and self._size > LARGEST_INLINE:
            path = self._files.piece(self._name)
            self._path = str(path)
            self._file = path.open("xb")
            self._file.write(b"".join(self._blocks))
            self._blocks.clear()
        if self._file is None:
            self._blocks.append(data)
        else:
            self._file.write(data)

    def finish(self) -> RowPiece:
        if self._file is not None:
            self._file.close()
        return RowPiece(self._size, b"".join(self._blocks), self._path)


class _Batch:
    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.rows = 0
        self.pieces: list[RowPiece | _Spool] = []

    def finish(self) -> RowBatch:
        pieces = [p.finish() if isinstance(p, _Spool) else p for p in self.pieces]
        return RowBatch(self.columns, self.rows, pieces)


class PendingRows:
    """Collects what micro-batches staged until a barrier cuts it off."""

    def __init__(self, files: RowFiles) -> None:
        self._files = files
        self._batches: defaultdict[int, list[_Batch]] = defaultdict(list)

    def add(self, subtask: int, columns: Sequence[str], staged: StagedRows) -> None:
        """Take what a subtask staged."""
        batches = self._batches[subtask]
        names = tuple(columns)
        if not batches or batches[-1].columns != names:
            batches.append(_Batch(names))
        batch = batches[-1]
        batch.rows += staged.rows
        if staged.piece.path:
            batch.pieces.append(staged.piece)
            return
        if not batch.pieces or not isinstance(batch.pieces[-1], _Spool):
            batch.pieces.append(_Spool(self._files, f"spool-{uuid4().hex}"))
        spool = batch.pieces[-1]
        assert isinstance(spool, _Spool)
        spool.add(staged.piece.data)

    def cut(self) -> dict[int, list[RowBatch]]:
        """Give what was added since the last cut, by subtask; nothing is added to it any more."""
        cut = {at: [batch.finish() for batch in b] for at, b in sorted(self._batches.items())}
        self._batches.clear()
        return cut
