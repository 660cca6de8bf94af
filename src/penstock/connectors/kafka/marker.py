"""What a job has published to Kafka so far, as one number that only grows.

Commits run in the order of checkpoints, and a restored job commits what it restored before it
stages anything. So all that is ever published has an order: the attempt that staged it, then the
checkpoint, then the part of that cut; and how far the job has come in it says everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Self

from penstock.connectors.kafka.staged_part import StagedPart
from penstock.errors import IncompleteKafkaCutError

__all__ = ["Marker", "transactions_of"]

_CHECKPOINTS = 10**10
"""More than any job takes; in an offset, attempt and checkpoint can be read by eye."""

_PARTS_DONE = re.compile(r"parts=([0-9]+)")
_ALL_PARTS = "parts=all"


@dataclass(frozen=True, slots=True)
class Marker:
    """All below ``offset`` is published, and of the cut at ``offset`` the first parts."""

    offset: int
    parts: int | None
    """None for all of them."""

    @classmethod
    def before(cls, attempt: int) -> Self:
        """Mark the beginning of an attempt that has published nothing yet."""
        return cls(attempt * _CHECKPOINTS, 0)

    @classmethod
    def behind(cls, part: StagedPart) -> Self:
        """Mark that a part is published, and all before it."""
        is_last = part.part + 1 == part.parts
        return cls(_offset(part), None if is_last else part.part + 1)

    @classmethod
    def read(cls, offset: int, text: str | None) -> Self:
        """Read the offset and the text that a broker keeps."""
        found = _PARTS_DONE.fullmatch(text or _ALL_PARTS)
        return cls(offset, None if found is None else int(found[1]))

    @property
    def text(self) -> str:
        """What the broker keeps besides the offset."""
        return _ALL_PARTS if self.parts is None else f"parts={self.parts}"

    def covers(self, part: StagedPart) -> bool:
        """Tell whether a part is published."""
        offset = _offset(part)
        if offset == self.offset:
            return self.parts is None or part.part < self.parts
        return offset < self.offset


def transactions_of(
    parts: Iterable[StagedPart], marker: Marker, largest_size: int
) -> list[list[StagedPart]]:
    """Share what is not published yet out over transactions, in order; parts stay whole.

    All parts of one cut have to be there, since publishing later ones covers earlier ones: raises
    `IncompleteKafkaCutError`.
    """
    owed = {_place(part): part for part in parts if not marker.covers(part)}
    ordered = [owed[place] for place in sorted(owed)]
    for offset, cut in groupby(ordered, _offset):
        _check_whole(list(cut), marker.parts or 0 if offset == marker.offset else 0)
    transactions: list[list[StagedPart]] = []
    size = 0
    for part in ordered:
        size += part.size
        if not transactions or size > largest_size:
            transactions.append([])
            size = part.size
        transactions[-1].append(part)
    return transactions


def _check_whole(cut: list[StagedPart], done: int) -> None:
    parts = cut[0].parts
    missing = set(range(done, parts)) - {part.part for part in cut}
    if missing:
        raise IncompleteKafkaCutError(cut[0].checkpoint, len(missing), parts)


def _offset(part: StagedPart) -> int:
    return part.attempt * _CHECKPOINTS + part.checkpoint


def _place(part: StagedPart) -> tuple[int, int]:
    return _offset(part), part.part
