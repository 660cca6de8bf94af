"""Whether a job's output is what its input makes: recomputed from outside, in plain Python.

Nothing here uses the engine that is being judged.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["Verdict", "compare", "finished_files", "read_lines", "verify"]

Event = TypeVar("Event", bound=Hashable)
Row = TypeVar("Row")

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found; `str()` tells it in one line, with some examples."""

    events: int
    """How many there were in the input."""
    results: int
    """How many rows there are in the output."""
    lost: tuple[Any, ...] = ()
    """Events, or expected rows, without a result."""
    duplicated: tuple[Any, ...] = ()
    """Those with more results than there should be, once for each one too many."""
    unknown: tuple[Any, ...] = ()
    """Results that no event of the input can have made."""
    wrong: tuple[str, ...] = ()
    """Results that are not what they should be, in words."""
    out_of_order: tuple[str, ...] = ()
    """Events of one source and key that took effect in another order, in words."""

    @property
    def is_exactly_once(self) -> bool:
        """Whether everything is there once, right and in order."""
        return not (self.lost or self.is_wrong or self.duplicated)

    @property
    def is_at_most_once(self) -> bool:
        """Whether nothing is there twice or wrong; something may be missing."""
        return not (self.is_wrong or self.duplicated)

    @property
    def is_at_least_once(self) -> bool:
        """Whether nothing is missing or invented; something may be there twice, and so wrong."""
        return not (self.lost or self.unknown)

    @property
    def is_wrong(self) -> bool:
        """Whether there are results that could not come of any number of executions."""
        return bool(self.unknown or self.wrong or self.out_of_order)

    def __str__(self) -> str:
        told = [f"{self.events} events, {self.results} results"]
        parts = {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "unknown": self.unknown,
            "wrong": self.wrong,
            "out of order": self.out_of_order,
        }
        for name, found in parts.items():
            always = name in ("lost", "duplicated")
            if found:
                more = ", …" if len(found) > _SHOWN else ""
                told.append(f"{len(found)} {name}: {', '.join(map(str, found[:_SHOWN]))}{more}")
            elif always:
                told.append(f"0 {name}")
        return "; ".join(told)


def compare(expected: Iterable[Hashable], results: Iterable[Hashable]) -> Verdict:
    """Compare the rows there should be with those there are, in any order."""
    wanted, there = Counter(expected), Counter(results)
    lost = list((wanted - there).elements())
    surplus = there - wanted
    return Verdict(
        events=wanted.total(),
        results=there.total(),
        lost=tuple(lost),
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
) -> Verdict:
    """Judge a keyed job that makes one result of each event, at any interleaving of its sources.

    Args:
        events: the input, by source, in the order each source gives it.
        results: the output, in any order.
        event_of: which event a result is of.
        key_of: which key it belongs to.
        position_of: which one of its key's results it is, as the job counted them.
        replay: what a key's events make, in the order given; the program in plain Python.

    The order in which a key's events took effect is read from the results and must be one that
    the sources allow; the results are then recomputed from it and must be the same.
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
                out_of_order.append(f"{event!r} of {source} behind a later one, in key {key!r}")
            last[source] = max(index, last.get(source, -1))
    return Verdict(
        events=len(place),
        results=len(rows),
        lost=tuple(e for e in place if e not in seen),
        duplicated=tuple(e for e, n in seen.items() if e in place for _ in range(n - 1)),
        unknown=tuple(row for row in rows if event_of(row) not in place),
        wrong=tuple(wrong),
        out_of_order=tuple(out_of_order),
    )


def finished_files(directory: str | os.PathLike[str]) -> list[Path]:
    """Return the files below a sink's path that a reader may see: no name begins with a dot."""
    root = Path(directory)
    visible = [
        path
        for path in root.rglob("*")
        if path.is_file()
        and not any(name.startswith((".", "_")) for name in path.relative_to(root).parts)
    ]
    return sorted(visible)


def read_lines(directory: str | os.PathLike[str]) -> list[str]:
    """Return all lines of the finished files below a sink's path."""
    return [
        line
        for path in finished_files(directory)
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
