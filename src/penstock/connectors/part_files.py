"""The driver's half of a file sink: from staged files to files that wait for their commit."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from penstock.connectors.durable import link_or_copy, sync_directory, sync_file
from penstock.connectors.part_committer import PendingPart, UnrolledPieces, decode_kept, encode
from penstock.connectors.part_format import PartFormat
from penstock.connectors.part_staging import decode_parts
from penstock.connectors.pre_commits import PreCommits
from penstock.connectors.rolling import Piece, RollingPolicy, roll_at_barrier
from penstock.connectors.sink import PublisherContext, SinkCut, SinkPublisher
from penstock.connectors.staging_area import StagingArea
from penstock.errors import LostStagedFileError

__all__ = ["PartFilePublisher", "PartNames"]


@dataclass(frozen=True, slots=True)
class PartNames:
    """Where part files go and what they are called."""

    base_path: Path
    prefix: str
    suffix: str

    def spell(self, bucket: str, writer: str, number: int) -> Path:
        """Name the part with this number of a writer in a bucket."""
        return self.base_path / bucket / f"{self.prefix}-{writer}-{number}{self.suffix}"


@dataclass(frozen=True, slots=True)
class _Part:
    """Pieces that were cut off together, the file they become, and who else may need them."""

    final: Path
    pieces: list[Piece]
    held: frozenset[str]
    """Those that some checkpoint may have in its state."""


class _Writer:
    """Names the parts of one subtask in this attempt; no other attempt makes the same names."""

    def __init__(self) -> None:
        self._uid = str(uuid4())
        self._next = 0

    def name(self, names: PartNames, bucket: str) -> Path:
        number, self._next = self._next, self._next + 1
        return names.spell(bucket, self._uid, number)


class PartFilePublisher(SinkPublisher):
    """Remembers what was published, and at a barrier makes pending files of what is rolled.

    The staged files (pieces) stay as they are, whatever part is made of them: an older checkpoint
    may hold them as its state.
    """

    def __init__(
        self,
        names: PartNames,
        policy: RollingPolicy,
        part_format: PartFormat,
        area: StagingArea,
        context: PublisherContext,
    ) -> None:
        self._names = names
        self._policy = policy
        self._format = part_format
        self._area = area
        self._attempt = context.attempt
        self._writers: defaultdict[int, _Writer] = defaultdict(_Writer)
        self._pieces: defaultdict[tuple[int, str], list[Piece]] = defaultdict(list)
        self._pre_commits = PreCommits()
        self._durable: set[str] = set()
        self._held: set[str] = set()
        for unrolled in sorted(_restored(context.restored), key=lambda kept: kept.subtask):
            _check(unrolled.pieces)
            subtask = unrolled.subtask % context.parallelism
            self._pieces[subtask, unrolled.bucket].extend(unrolled.pieces)
            self._durable.update(piece.path for piece in unrolled.pieces)
        self._held.update(self._durable)

    def publish(self, staged: Sequence[bytes]) -> None:
        now = time.time()
        for subtask, entry in enumerate(staged):
            for part in decode_parts(entry):
                self._pieces[subtask, part.bucket].append(Piece(part.path, part.size, now))

    def at_barrier(self, checkpoint: int, *, roll_all: bool) -> Callable[[], SinkCut]:
        now = time.time()
        parts: list[_Part] = []
        unrolled: list[UnrolledPieces] = []
        for (subtask, bucket), pieces in list(self._pieces.items()):
            complete, rest = roll_at_barrier(pieces, self._policy, now, roll_all=roll_all)
            writer = self._writers[subtask]
            for part in complete:
                held = self._held.intersection(piece.path for piece in part)
                self._held -= held
                parts.append(_Part(writer.name(self._names, bucket), part, frozenset(held)))
            if rest:
                self._held.update(piece.path for piece in rest)
                unrolled.append(UnrolledPieces(subtask, bucket, rest))
                self._pieces[subtask, bucket] = list(rest)
            else:
                del self._pieces[subtask, bucket]
        return self._pre_commits.cut(lambda: self._prepare(parts), lambda: self._keep(unrolled))

    def _prepare(self, parts: Sequence[_Part]) -> list[bytes]:
        if not parts:
            return []
        committables = [encode(self._make_pending(part)) for part in parts]
        self._area.sync(self._attempt)
        return committables

    def _make_pending(self, part: _Part) -> PendingPart:
        _check(part.pieces)
        pending = self._area.pending(self._attempt, part.final)
        pending.parent.mkdir(parents=True, exist_ok=True)
        paths = [Path(piece.path) for piece in part.pieces]
        if len(paths) == 1:
            link_or_copy(paths[0], pending)
            sync_file(pending)
        else:
            with pending.open("wb") as file:
                self._format.join(paths, file)
                file.flush()
                os.fsync(file.fileno())
        # A piece of another job belongs to that job's checkpoint, which may be restored again.
        own = [str(path) for path in paths if path.is_relative_to(self._area.root)]
        return PendingPart(
            str(pending),
            str(part.final),
            pending.stat().st_size,
            pieces=[path for path in own if path not in part.held],
            held=[path for path in own if path in part.held],
        )

    def _keep(self, unrolled: Sequence[UnrolledPieces]) -> list[bytes]:
        pieces = {piece.path: piece for kept in unrolled for piece in kept.pieces}
        new = [piece for path, piece in pieces.items() if path not in self._durable]
        _check(new)
        for piece in new:
            sync_file(Path(piece.path))
        for directory in {Path(piece.path).parent for piece in new}:
            sync_directory(directory)
        if new:
            self._area.sync(self._attempt)
        self._durable = set(pieces)
        return [encode(kept) for kept in unrolled]


def _restored(state: Iterable[bytes]) -> list[UnrolledPieces]:
    return [kept for kept in map(decode_kept, state) if isinstance(kept, UnrolledPieces)]


def _check(pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        path = Path(piece.path)
        size = path.stat().st_size if path.exists() else 0
        if size != piece.size:
            raise LostStagedFileError(piece.path, piece.size, size)
