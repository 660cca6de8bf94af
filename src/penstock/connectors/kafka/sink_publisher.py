"""The driver's half of a Kafka sink: from staged records to what a checkpoint owes."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from penstock.connectors.durable import sync_file
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

_LARGEST_INLINE = 32 * 1024
"""What a part may take in the metadata of a checkpoint; more lies in files."""


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
        self._pieces: defaultdict[int, list[Piece]] = defaultdict(list)
        self._pre_commits = PreCommits()

    def publish(self, staged: Sequence[bytes]) -> None:
        for subtask, entry in enumerate(staged):
            if entry:
                self._pieces[subtask].append(decode_piece(entry))

    def at_barrier(self, checkpoint: int, *, roll_all: bool) -> Callable[[], SinkCut]:
        cut_off, self._pieces = self._pieces, defaultdict(list)
        return self._pre_commits.cut(lambda: self._prepare(checkpoint, cut_off), list)

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
        if sum(piece.size for piece in pieces) <= _LARGEST_INLINE:
            kept = [piece for piece in pieces if not piece.name]
            if len(kept) == len(pieces):
                return [_joined(pieces)]
        durable: list[Piece] = []
        for is_inline, run in groupby(pieces, lambda piece: not piece.name):
            if is_inline:
                durable.append(self._written(cut, len(durable), _joined(list(run))))
            else:
                durable.extend(self._synced(piece) for piece in run)
        return durable

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


def _joined(pieces: Sequence[Piece]) -> Piece:
    data = b"".join(piece.inline for piece in pieces)
    return Piece("", len(data), sum(piece.records for piece in pieces), data)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
