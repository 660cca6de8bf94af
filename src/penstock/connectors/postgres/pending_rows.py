"""Rows that were published and not yet cut off, by subtask and in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from uuid import uuid4

from penstock.connectors.postgres.loading import RowBatch
from penstock.connectors.postgres.row_files import RowFiles, RowPiece, RowSpool
from penstock.connectors.postgres.staged_rows import StagedRows

__all__ = ["PendingRows"]


class _Batch:
    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.rows = 0
        self.pieces: list[RowPiece | RowSpool] = []

    def finish(self) -> RowBatch:
        pieces = [p.finish() if isinstance(p, RowSpool) else p for p in self.pieces]
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
        if staged.piece.name:
            batch.pieces.append(staged.piece)
            return
        if not batch.pieces or not isinstance(batch.pieces[-1], RowSpool):
            batch.pieces.append(RowSpool(self._files, f"spool-{uuid4().hex}"))
        spool = batch.pieces[-1]
        assert isinstance(spool, RowSpool)
        spool.add(staged.piece.data)

    def cut(self) -> dict[int, list[RowBatch]]:
        """Give what was added since the last cut, by subtask; nothing is added to it any more."""
        cut = {at: [batch.finish() for batch in b] for at, b in sorted(self._batches.items())}
        self._batches.clear()
        return cut
