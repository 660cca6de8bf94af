"""Publisher of a file sink: joins staged files into pending files, which wait for their commit."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from uuid import uuid4

from penstock.common.new_files import create_file
from penstock.connectors.contracts.sink import PublisherContext, SinkPublisher, SinkSnapshot
from penstock.connectors.files.bucket_assigner import check_bucket
from penstock.connectors.files.committer import PendingPart, UnrolledPieces, decode_entry, encode
from penstock.connectors.files.rolling_policy import Piece, RollingPolicy, roll_at_barrier
from penstock.connectors.files.writer import PartFormat, decode_parts
from penstock.connectors.staging.pre_commits import PreCommits
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.storage.durable_files import (
    check_content,
    check_size,
    checksum,
    link_or_copy,
)


@dataclass(frozen=True, slots=True)
class OutputFileConfig:
    """Prefix and suffix of the names of part files."""

    part_prefix: str
    part_suffix: str

    @staticmethod
    def builder() -> OutputFileConfigBuilder:
        """Return a builder with the prefix ``part`` and no suffix."""
        return OutputFileConfigBuilder()

    def part_name(self, unique: str) -> str:
        """Return the name of a part file."""
        return f"{self.part_prefix}-{unique}{self.part_suffix}"

    def get_part_prefix(self) -> str:
        """Return the prefix."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """Return the suffix."""
        return self.part_suffix


@dataclass(slots=True)
class OutputFileConfigBuilder:
    """Builds an :class:`OutputFileConfig`."""

    part_prefix: str = "part"
    part_suffix: str = ""

    def with_part_prefix(self, prefix: str) -> OutputFileConfigBuilder:
        """Set the prefix."""
        self.part_prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> OutputFileConfigBuilder:
        """Set the suffix."""
        self.part_suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        """Build the configuration."""
        return OutputFileConfig(self.part_prefix, self.part_suffix)


@dataclass(frozen=True, slots=True)
class PartFileSettings:
    """Where a file sink writes its part files, in which format, and how it names and ends them."""

    base_path: Path
    part_format: PartFormat
    rolling_policy: RollingPolicy
    output_file_config: OutputFileConfig = OutputFileConfig("part", "")


@dataclass(frozen=True, slots=True)
class _Part:
    """Pieces that go into one part file, and its final path.

    ``in_state`` are the pieces that may be in the state of an older checkpoint.
    """

    final: Path
    pieces: list[Piece]
    in_state: frozenset[str]


def _unique_names() -> Iterator[str]:
    """Yield names for the parts of one subtask that no other attempt gives."""
    writer = uuid4()
    return (f"{writer}-{number}" for number in count())


@dataclass(eq=False)
class PartFilePublisher(SinkPublisher):
    """Collects published pieces (staged files), and makes pending files of them at a barrier.

    Pieces stay as they are when a part is made of them: an older checkpoint may have them in its
    state.
    """

    settings: PartFileSettings
    directory: StagingDirectory
    context: PublisherContext

    def __post_init__(self) -> None:
        self._unique: defaultdict[int, Iterator[str]] = defaultdict(_unique_names)
        self._pieces: defaultdict[tuple[int, str], list[Piece]] = defaultdict(list)
        self._pre_commits = PreCommits()
        self._durable: set[str] = set()
        restored = map(decode_entry, self.context.restored)
        kept = [entry for entry in restored if isinstance(entry, UnrolledPieces)]
        for unrolled in sorted(kept, key=lambda entry: entry.subtask):
            check_bucket(unrolled.bucket, self.settings.base_path)
            for piece in unrolled.pieces:
                check_size(self.directory.staged_file(piece.path)[0], piece.size)
            subtask = unrolled.subtask % self.context.parallelism
            self._pieces[subtask, unrolled.bucket].extend(unrolled.pieces)
            self._durable.update(piece.path for piece in unrolled.pieces)
        self._in_state = set(self._durable)

    def publish(self, staged: Sequence[bytes]) -> None:
        now = time.time()
        for subtask, entry in enumerate(staged):
            for part in decode_parts(entry, self.context.staging_dir):
                self._pieces[subtask, part.bucket].append(
                    Piece(part.path, part.size, now, part.crc)
                )

    def discard_staged(self, prefix: str) -> None:
        self.directory.remove_staged(prefix)

    def at_barrier(self, checkpoint: int, *, flush: bool) -> Callable[[], SinkSnapshot]:
        now = time.time()
        parts: list[_Part] = []
        unrolled: list[UnrolledPieces] = []
        for (subtask, bucket), pieces in list(self._pieces.items()):
            complete, rest = roll_at_barrier(pieces, self.settings.rolling_policy, now, flush=flush)
            for part in complete:
                in_state = self._in_state.intersection(piece.path for piece in part)
                self._in_state -= in_state
                name = self.settings.output_file_config.part_name(next(self._unique[subtask]))
                final = self.settings.base_path / bucket / name
                parts.append(_Part(final, part, frozenset(in_state)))
            if rest:
                self._in_state.update(piece.path for piece in rest)
                unrolled.append(UnrolledPieces(subtask, bucket, rest))
                self._pieces[subtask, bucket] = list(rest)
            else:
                del self._pieces[subtask, bucket]
        return self._pre_commits.add(lambda: self._prepare(parts), lambda: self._keep(unrolled))

    def _prepare(self, parts: Sequence[_Part]) -> list[bytes]:
        pending = [self._make_pending(part) for part in parts]
        self.directory.sync(Path(part.pending) for part in pending)
        # Damage that is found before the checkpoint completes loses nothing.
        for part in pending:
            check_content(Path(part.pending), part.size, part.crc)
        return list(map(encode, pending))

    def _make_pending(self, part: _Part) -> PendingPart:
        pending = self.directory.path(f"{part.final.name}.pending")
        pending.parent.mkdir(parents=True, exist_ok=True)
        paths = [Path(piece.path) for piece in part.pieces]
        if len(paths) == 1:
            check_size(paths[0], part.pieces[0].size)
            link_or_copy(paths[0], pending)
            crc = part.pieces[0].crc
        else:
            _check(part.pieces)
            with create_file(pending, "wb") as file:
                self.settings.part_format.join(paths, file)
            crc = checksum(pending)
        # A piece of another job belongs to that job's checkpoint, which may be restored again.
        own = [str(path) for path in paths if self.directory.owns(path)]
        return PendingPart(
            str(pending),
            str(part.final),
            pending.stat().st_size,
            pieces=[path for path in own if path not in part.in_state],
            held=[path for path in own if path in part.in_state],
            crc=crc,
        )

    def _keep(self, unrolled: Sequence[UnrolledPieces]) -> list[bytes]:
        pieces = {piece.path: piece for kept in unrolled for piece in kept.pieces}
        new = [piece for path, piece in pieces.items() if path not in self._durable]
        _check(new)
        self.directory.sync(Path(piece.path) for piece in new)
        self._durable = set(pieces)
        return list(map(encode, unrolled))


def _check(pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        check_content(Path(piece.path), piece.size, piece.crc)
