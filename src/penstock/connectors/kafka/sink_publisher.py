"""The driver's half of a Kafka sink: from staged records to what a checkpoint owes."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.connectors.durable import sync_file
from penstock.connectors.kafka.pending_records import PendingRecords
from penstock.connectors.kafka.staged_part import (
    Account,
    Piece,
    StagedPart,
    decode_piece,
    encode,
)
from penstock.connectors.pre_commits import PreCommits
from penstock.connectors.sink import SinkCut, SinkPublisher
from penstock.connectors.staging_area import StagingArea
from penstock.errors import LostStagedFileError

__all__ = ["DirectPublisher", "StagedPublisher"]


class DirectPublisher(SinkPublisher):
    """Has nothing to do: brokers have what tasks wrote."""

    def publish(self, staged: Sequence[bytes]) -> None:
        pass


class StagedPublisher(SinkPublisher):
    """Remembers what was published, and makes it durable at the barrier, a part per subtask."""

    def __init__(self, account: Account, area: StagingArea, attempt: int) -> None:
        self._account = account
        self._area = area
        self._attempt = attempt
        self._pending = PendingRecords(area)
        self._pre_commits = PreCommits()

    def publish(self, staged: Sequence[bytes]) -> None:
        for subtask, entry in enumerate(staged):
            if entry:
                self._pending.add(subtask, decode_piece(entry))

    def at_barrier(self, checkpoint: int, *, roll_all: bool) -> Callable[[], SinkCut]:
        cut_off = self._pending.cut()
        return self._pre_commits.cut(lambda: self._prepare(checkpoint, cut_off), list)

    def close(self) -> None:
        self._pending.close()

    def _prepare(self, checkpoint: int, cut_off: Mapping[int, list[Piece]]) -> list[bytes]:
        parts = [
            StagedPart(
                self._account,
                self._attempt,
                checkpoint,
                number,
                len(cut_off),
                str(self._area.root),
                self._durable(f"{checkpoint}-{subtask}", cut_off[subtask]),
            )
            for number, subtask in enumerate(sorted(cut_off))
        ]
        if any(piece.name for part in parts for piece in part.pieces):
            self._area.sync(self._area.attempt)
        return [encode(part) for part in parts]

    def _durable(self, cut: str, pieces: Sequence[Piece]) -> list[Piece]:
        if len(pieces) == 1 and not pieces[0].name:
            return list(pieces)
        return [
            self._synced(piece) if piece.name else self._written(cut, number, piece)
            for number, piece in enumerate(pieces)
        ]

    def _written(self, cut: str, number: int, piece: Piece) -> Piece:
        path = self._area.piece(self._area.attempt, f"cut-{cut}", number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(piece.inline)
            file.flush()
            os.fsync(file.fileno())
        return Piece(str(path.relative_to(self._area.root)), piece.size, piece.records)

    def _synced(self, piece: Piece) -> Piece:
        path = self._area.root / piece.name
        size = _size(path)
        if size != piece.size:
            raise LostStagedFileError(str(path), piece.size, size)
        sync_file(path)
        return piece


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
