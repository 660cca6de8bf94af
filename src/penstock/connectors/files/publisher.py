"""Publisher of a file sink: joins staged files into pending files, which wait for their commit."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import UUID

from penstock.common.storage_url import Location
from penstock.connectors.contracts.sink import PublisherContext, SinkPublisher, SinkSnapshot
from penstock.connectors.files.bucket_assigner import check_bucket
from penstock.connectors.files.committables import UnrolledPieces, decode_entry, encode
from penstock.connectors.files.part_files import Part, PartFiles, PartFormat
from penstock.connectors.files.rolling_policy import Piece, RollingPolicy, roll_at_barrier
from penstock.connectors.files.writer import decode_parts
from penstock.connectors.staging.pre_commits import PreCommits
from penstock.errors import RestoreMismatchError


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

    base_path: Location
    part_format: PartFormat
    rolling_policy: RollingPolicy
    output_file_config: OutputFileConfig = OutputFileConfig("part", "")


def _unique_names(writer: UUID) -> Iterator[str]:
    """Yield names for the parts of one subtask that no other attempt gives."""
    return (f"{writer}-{number}" for number in count())


@dataclass(eq=False)
class PartFilePublisher(SinkPublisher):
    """Collects published pieces (staged files), and makes pending files of them at a barrier."""

    settings: PartFileSettings
    files: PartFiles[Any]
    context: PublisherContext

    def __post_init__(self) -> None:
        self._unique: defaultdict[int, Iterator[str]] = defaultdict(
            lambda: _unique_names(self.files.writer_id())
        )
        self._pieces: defaultdict[tuple[int, str], list[Piece]] = defaultdict(list)
        self._pre_commits = PreCommits()
        self._durable: set[str] = set()
        restored = map(decode_entry, self.context.restored)
        kept = [entry for entry in restored if isinstance(entry, UnrolledPieces)]
        for unrolled in sorted(kept, key=lambda entry: entry.subtask):
            check_bucket(unrolled.bucket, self.settings.base_path)
            for piece in unrolled.pieces:
                self._check_place(piece)
                self.files.check_size(piece)
            subtask = unrolled.subtask % self.context.parallelism
            self._pieces[subtask, unrolled.bucket].extend(unrolled.pieces)
            self._durable.update(piece.path for piece in unrolled.pieces)
        self._in_state = set(self._durable)
        self._of_other_jobs = {path for path in self._durable if not self.files.owns(path)}

    def publish(self, staged: Sequence[bytes]) -> None:
        now = time.time()
        for subtask, entry in enumerate(staged):
            for part in decode_parts(entry, self.context.staging_dir):
                self._pieces[subtask, part.bucket].append(
                    Piece(part.path, part.size, now, part.crc)
                )

    def discard_staged(self, prefix: str) -> None:
        self.files.remove_staged(prefix)

    def at_barrier(self, checkpoint: int, *, flush: bool) -> Callable[[], SinkSnapshot]:
        now = time.time()
        parts: list[Part] = []
        unrolled: list[UnrolledPieces] = []
        for (subtask, bucket), pieces in list(self._pieces.items()):
            # The first checkpoint after a restore needs no snapshot of another job.
            ends = flush or not self._of_other_jobs.isdisjoint(piece.path for piece in pieces)
            policy = self.settings.rolling_policy
            complete, rest = roll_at_barrier(pieces, policy, now, flush=ends)
            for part in complete:
                in_state = self._in_state.intersection(piece.path for piece in part)
                self._in_state -= in_state
                name = self.settings.output_file_config.part_name(next(self._unique[subtask]))
                final = self.settings.base_path / bucket / name
                parts.append(Part(final, part, frozenset(in_state)))
            if rest:
                self._in_state.update(piece.path for piece in rest)
                unrolled.append(UnrolledPieces(subtask, bucket, rest))
                self._pieces[subtask, bucket] = list(rest)
            else:
                del self._pieces[subtask, bucket]
        self._of_other_jobs.clear()
        return self._pre_commits.add(lambda: self._prepare(parts), lambda: self._keep(unrolled))

    def _check_place(self, piece: Piece) -> None:
        if not self.files.has(piece.path):
            reason = (
                f"it has an unfinished file, {piece.path}, and now writes to "
                f"{self.settings.base_path}: restore it with the path it had, or restore a "
                "savepoint, which has no unfinished files"
            )
            raise RestoreMismatchError(self.context.name, "the snapshot", reason)

    def _prepare(self, parts: Sequence[Part]) -> list[bytes]:
        return list(map(encode, self.files.prepare(parts, self.settings.part_format)))

    def _keep(self, unrolled: Sequence[UnrolledPieces]) -> list[bytes]:
        pieces = {piece.path: piece for kept in unrolled for piece in kept.pieces}
        self.files.keep([piece for path, piece in pieces.items() if path not in self._durable])
        self._durable = set(pieces)
        return list(map(encode, unrolled))
