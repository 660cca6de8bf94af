"""What a job has published to Kafka so far, in a few characters.

Each attempt of a job publishes its own checkpoints in order, so for each attempt it is enough to
know how far it has come. Attempts are not put in one order: one that was restored from a savepoint
may publish what an earlier attempt had staged, behind what others have published since.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Self

from penstock.connectors.kafka.staged_part import StagedPart
from penstock.errors import IncompleteKafkaCutError

__all__ = ["Marker", "Published", "transactions_of"]

_CHECKPOINTS = 10**10
"""More than any job takes; in an offset, attempt and checkpoint can be read by eye."""

_MOST_ATTEMPTS = 100
"""That many fit into the metadata of an offset; who last published before them is forgotten."""

_TEXT = re.compile(r"from=([0-9]+)((?: [0-9]+:[0-9]+(?:/[0-9]+)?)*)")
_ENTRY = re.compile(r"([0-9]+):([0-9]+)(?:/([0-9]+))?")


@dataclass(frozen=True, slots=True)
class Published:
    """All that an attempt staged below a checkpoint is published, and parts of that one."""

    attempt: int
    checkpoint: int
    parts: int | None
    """How many, from the first; None for all."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What is published of every attempt; nothing is known of attempts before ``first``.

    Attempts that have published nothing are not listed; the one that published last comes last.
    """

    first: int
    published: tuple[Published, ...] = ()

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """Read what a broker keeps besides the offset; None if it is no marker."""
        found = _TEXT.fullmatch(text or "")
        if found is None:
            return None
        entries = _ENTRY.findall(found[2])
        return cls(
            int(found[1]),
            tuple(Published(int(a), int(c), int(p) if p else None) for a, c, p in entries),
        )

    @property
    def text(self) -> str:
        """What a broker keeps besides the offset."""
        entries = (
            f" {p.attempt}:{p.checkpoint}" + ("" if p.parts is None else f"/{p.parts}")
            for p in self.published
        )
        return f"from={self.first}{''.join(entries)}"

    @property
    def offset(self) -> int:
        """The newest checkpoint, for people who look at offsets."""
        if not self.published:
            return self.first * _CHECKPOINTS
        newest = max(self.published, key=lambda p: p.attempt)
        return newest.attempt * _CHECKPOINTS + newest.checkpoint

    def covers(self, part: StagedPart) -> bool | None:
        """Tell whether a part is published; None if nobody knows."""
        for published in self.published:
            if published.attempt == part.attempt:
                if published.checkpoint == part.checkpoint:
                    return published.parts is None or part.part < published.parts
                return part.checkpoint < published.checkpoint
        return None if part.attempt < self.first else False

    def behind(self, part: StagedPart) -> Self:
        """Return the marker once a part is published too, and all before it of its attempt."""
        is_last = part.part + 1 == part.parts
        new = Published(part.attempt, part.checkpoint, None if is_last else part.part + 1)
        others = (p for p in self.published if p.attempt != part.attempt)
        published = (*others, new)
        forgotten = published[:-_MOST_ATTEMPTS]
        first = max((self.first, *(p.attempt + 1 for p in forgotten)))
        return type(self)(first, published[-_MOST_ATTEMPTS:])

    def parts_done(self, part: StagedPart) -> int:
        """Tell how many parts of a part's cut, which is not all published, are published."""
        for published in self.published:
            if (published.attempt, published.checkpoint) == (part.attempt, part.checkpoint):
                return published.parts or 0
        return 0


def transactions_of(
    parts: Iterable[StagedPart], marker: Marker, largest_size: int
) -> list[list[StagedPart]]:
    """Share what is not known to be published out over transactions, in order; parts stay whole.

    All parts of one cut have to be there, since publishing later ones covers earlier ones: raises
    `IncompleteKafkaCutError`.
    """
    owed = {_place(part): part for part in parts if not marker.covers(part)}
    ordered = [owed[place] for place in sorted(owed)]
    for _, cut in groupby(ordered, lambda part: _place(part)[:2]):
        _check_whole(list(cut), marker)
    transactions: list[list[StagedPart]] = []
    size = 0
    for part in ordered:
        size += part.size
        if not transactions or size > largest_size:
            transactions.append([])
            size = part.size
        transactions[-1].append(part)
    return transactions


def _check_whole(cut: list[StagedPart], marker: Marker) -> None:
    parts = cut[0].parts
    missing = set(range(marker.parts_done(cut[0]), parts)) - {part.part for part in cut}
    if missing:
        raise IncompleteKafkaCutError(cut[0].checkpoint, len(missing), parts)


def _place(part: StagedPart) -> tuple[int, int, int]:
    return part.attempt, part.checkpoint, part.part
