"""The input of the killed jobs and what it makes: plain Python, for the job and its judge alike.

An event is a number. The fast source gives 0, 1, 2, …; the slow one those from a million on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

KEYS = 13
BUCKETS = 4
SLOW = 1_000_000


class Result(NamedTuple):
    """One row of the output: what each of the three steps made of an event."""

    event: int
    key: int
    n: int
    """Which event of its key it is."""
    total: int
    """Of the values of its key's events up to it."""
    bucket: int
    m: int
    """Which event of its bucket it is."""
    recent: int
    """Sum of the last three events of the bucket, itself included."""
    token: str
    stamp: int
    """Which event it is that was stamped with this token."""


def key_of(event: int) -> int:
    """The key of an event; most events belong to few keys."""
    return min(event * 7919 % 31, KEYS - 1)


def bucket_of(key: int) -> int:
    """The bucket of a key."""
    return key % BUCKETS


def value_of(event: int) -> int:
    """What an event adds to the total of its key."""
    return event * 31 % 97 + 1


def events_of(fast: int, slow: int) -> dict[str, list[int]]:
    """All events by source, in order."""
    return {"fast": list(range(fast)), "slow": list(range(SLOW, SLOW + slow))}


def totals(events: Iterable[int]) -> Iterable[tuple[int, int]]:
    """What a key makes of its events: count and total behind each."""
    total = 0
    for n, event in enumerate(events, start=1):
        total += value_of(event)
        yield n, total
