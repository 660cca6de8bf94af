"""Verifies the output of a job against its input, recomputed in plain Python.

Nothing here uses the engine that is being verified.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Event = TypeVar("Event", bound=Hashable)
Row = TypeVar("Row")

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """The result of a verification; `str()` returns it in one line, with some examples."""

    events: int
    """How many events are in the input."""
    results: int
    """How many rows are in the output."""
    lost: tuple[Any, ...] = ()
    """Events, or expected rows, without a result."""
    duplicated: tuple[Any, ...] = ()
    """Events or rows with too many results, once for each extra result."""
    unknown: tuple[Any, ...] = ()
    """Results that belong to no event of the input."""
    wrong: tuple[str, ...] = ()
    """Descriptions of results with a wrong value."""
    out_of_order: tuple[str, ...] = ()
    """Descriptions of events of one source and key that were processed in another order."""

    @property
    def is_exactly_once(self) -> bool:
        """Whether every result is there once, correct and in order."""
        return not (self.lost or self.is_wrong or self.duplicated)

    @property
    def is_at_most_once(self) -> bool:
        """Whether no result is duplicated or wrong; some may be missing."""
        return not (self.is_wrong or self.duplicated)

    @property
    def is_at_least_once(self) -> bool:
        """Whether no result is missing or unknown; some may be duplicated and so be wrong."""
        return not (self.lost or self.unknown)

    @property
    def is_wrong(self) -> bool:
        """Whether there are results that no number of executions could produce."""
        return bool(self.unknown or self.wrong or self.out_of_order)

    def __str__(self) -> str:
        parts = [f"{self.events} events, {self.results} results"]
        findings = {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "unknown": self.unknown,
            "wrong": self.wrong,
            "out of order": self.out_of_order,
        }
        for name, found in findings.items():
            if found:
                more = ", …" if len(found) > _SHOWN else ""
                parts.append(f"{len(found)} {name}: {', '.join(map(str, found[:_SHOWN]))}{more}")
            elif name in ("lost", "duplicated"):
                parts.append(f"0 {name}")
        return "; ".join(parts)


def compare(expected: Iterable[Hashable], results: Iterable[Hashable]) -> VerificationResult:
    """Compare the expected rows with the actual ones, in any order."""
    wanted, there = Counter(expected), Counter(results)
    surplus = there - wanted
    return VerificationResult(
        events=wanted.total(),
        results=there.total(),
        lost=tuple((wanted - there).elements()),
        duplicated=tuple(r for r in surplus.elements() if r in wanted),
        unknown=tuple(r for r in surplus.elements() if r not in wanted),
    )


def verify(
    events: Mapping[str, Sequence[Event]],
    results: Iterable[Row],
    *,
    event_of: Callable[[Row], Event],
    key_of: Callable[[Row], Hashable],
    position_of: Callable[[Row], int],
    replay: Callable[[Any, list[Event]], Iterable[Row]],
) -> VerificationResult:
    """Verify a keyed job with one result per event, for any interleaving of its sources.

    Args:
        events: the input, by source, in the order of each source.
        results: the output, in any order.
        event_of: the event that a result belongs to.
        key_of: the key that a result belongs to.
        position_of: the position of a result among those of its key, as the job counted them.
        replay: the results of a key's events in the given order; the program in plain Python.

    The results show in which order the events of a key were processed. That order must be possible
    with these sources, and replaying it must give the same results.
    """
    place = {e: (source, i) for source, mine in events.items() for i, e in enumerate(mine)}
    rows = list(results)
    seen = Counter(map(event_of, rows))
    known = [row for row in rows if event_of(row) in place]
    by_key: defaultdict[Hashable, list[Row]] = defaultdict(list)
    for row in known:
        by_key[key_of(row)].append(row)
    wrong: list[str] = []
    out_of_order: list[str] = []
    for key, mine in by_key.items():
        mine.sort(key=position_of)
        in_order = [event_of(row) for row in mine]
        for row, should in zip(mine, replay(key, in_order), strict=True):
            if row != should:
                wrong.append(f"{row!r} instead of {should!r}")
        last: dict[str, int] = {}
        for event in in_order:
            source, index = place[event]
            if index < last.get(source, -1):
                out_of_order.append(f"{event!r} of {source} after a later one, in key {key!r}")
            last[source] = max(index, last.get(source, -1))
    return VerificationResult(
        events=len(place),
        results=len(rows),
        lost=tuple(e for e in place if e not in seen),
        duplicated=tuple(e for e, n in seen.items() if e in place for _ in range(n - 1)),
        unknown=tuple(row for row in rows if event_of(row) not in place),
        wrong=tuple(wrong),
        out_of_order=tuple(out_of_order),
    )


def finished_files(directory: str | os.PathLike[str]) -> list[Path]:
    """Return the visible files below a sink's path: no name starts with a dot or underscore."""
    root = Path(directory)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    hidden = (".", "_")
    return [f for f in files if not any(n.startswith(hidden) for n in f.relative_to(root).parts)]


def read_lines(directory: str | os.PathLike[str]) -> list[str]:
    """Return all lines of the finished files below a sink's path."""
    texts = (path.read_text(encoding="utf-8") for path in finished_files(directory))
    return [line for text in texts for line in text.splitlines()]
