"""The commit marker: a compact record of what a job has committed to Kafka.

It is stored as the metadata of a committed offset. Each attempt publishes its own checkpoints in
order, so one entry per attempt is enough. Attempts have no common order: one that was restored from
a savepoint may publish what an earlier attempt staged, after later attempts have published.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Self

from penstock.connectors.kafka.sink.committable import KafkaCommittable
from penstock.errors import IncompleteKafkaCheckpointError

_CHECKPOINTS = 10**10
"""More than any job takes; keeps attempt and checkpoint readable in an offset."""

_MAX_ATTEMPTS = 100
"""That many fit into an offset's metadata; those that published longest ago are dropped."""

_TEXT = re.compile(r"from=([0-9]+)((?: [0-9]+:[0-9]+(?:/[0-9]+)?)*)")
_ENTRY = re.compile(r"([0-9]+):([0-9]+)(?:/([0-9]+))?")


@dataclass(frozen=True, slots=True)
class AttemptProgress:
    """How far an attempt has committed: all earlier checkpoints, and parts of this one."""

    attempt: int
    checkpoint: int
    parts: int | None
    """How many parts, from the first; None for all."""


@dataclass(frozen=True, slots=True)
class CommitMarker:
    """What every attempt has committed; nothing is known about attempts before ``first``.

    An attempt that has committed nothing has no entry; the one that committed last comes last.
    """

    first: int
    progress: tuple[AttemptProgress, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Parse the metadata of an offset; None if it is not a marker."""
        found = _TEXT.fullmatch(text or "")
        if found is None:
            return None
        entries = _ENTRY.findall(found[2])
        return cls(
            int(found[1]),
            tuple(AttemptProgress(int(a), int(c), int(p) if p else None) for a, c, p in entries),
        )

    @property
    def text(self) -> str:
        """The metadata of the offset."""
        entries = (
            f" {p.attempt}:{p.checkpoint}" + ("" if p.parts is None else f"/{p.parts}")
            for p in self.progress
        )
        return f"from={self.first}{''.join(entries)}"

    @property
    def offset(self) -> int:
        """The offset: attempt and checkpoint committed last, for people who inspect the group."""
        if not self.progress:
            return self.first * _CHECKPOINTS
        newest = max(self.progress, key=lambda p: p.attempt)
        return newest.attempt * _CHECKPOINTS + newest.checkpoint

    def covers(self, part: KafkaCommittable) -> bool | None:
        """Return whether a committable is committed; None if that is unknown."""
        for progress in self.progress:
            if progress.attempt == part.attempt:
                if progress.checkpoint == part.checkpoint:
                    return progress.parts is None or part.part < progress.parts
                return part.checkpoint < progress.checkpoint
        return None if part.attempt < self.first else False

    def advanced_past(self, part: KafkaCommittable) -> Self:
        """Return the marker after a committable, and all before it of its attempt, is committed."""
        is_last = part.part + 1 == part.parts
        new = AttemptProgress(part.attempt, part.checkpoint, None if is_last else part.part + 1)
        progress = (*(p for p in self.progress if p.attempt != part.attempt), new)
        dropped = progress[:-_MAX_ATTEMPTS]
        first = max((self.first, *(p.attempt + 1 for p in dropped)))
        return type(self)(first, progress[-_MAX_ATTEMPTS:])

    def parts_committed(self, part: KafkaCommittable) -> int:
        """Return how many parts are committed of a checkpoint that is not fully committed."""
        for progress in self.progress:
            if (progress.attempt, progress.checkpoint) == (part.attempt, part.checkpoint):
                return progress.parts or 0
        return 0


def group_into_transactions(
    parts: Iterable[KafkaCommittable], marker: CommitMarker, max_bytes: int
) -> list[list[KafkaCommittable]]:
    """Distribute uncommitted committables over transactions, in order and undivided.

    All parts of a checkpoint must be present, since the marker of a later part covers the earlier
    ones; raises `IncompleteKafkaCheckpointError` otherwise.
    """
    pending = {part.order: part for part in parts if not marker.covers(part)}
    ordered = [pending[order] for order in sorted(pending)]
    for _, checkpoint in groupby(ordered, lambda part: part.order[:2]):
        first, *rest = checkpoint
        found = {first.part, *(part.part for part in rest)}
        if missing := set(range(marker.parts_committed(first), first.parts)) - found:
            raise IncompleteKafkaCheckpointError(first.checkpoint, len(missing), first.parts)
    transactions: list[list[KafkaCommittable]] = []
    size = 0
    for part in ordered:
        size += part.size
        if not transactions or size > max_bytes:
            transactions.append([])
            size = part.size
        transactions[-1].append(part)
    return transactions
