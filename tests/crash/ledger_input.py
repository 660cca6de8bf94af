"""The input of the killed jobs and its results, in plain Python for the job and its verifier.

An event is a number. The fast source gives 0, 1, 2, …; the slow one those from a million on. Where
the two are joined, those of the fast source are orders, and those of the slow one pay for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

KEYS = 13
BUCKETS = 4
SLOW = 1_000_000
RIVAL = 10_000_000
"""The first event of a second job that writes into the same output path."""
NO_PARTNER = -1
WAITING = 5
"""How many events of a key wait for a partner: a sixth sends the oldest one home."""


class Result(NamedTuple):
    """One row of the output: what each of the three steps made of an event."""

    event: int
    key: int
    n: int
    """Which event of its key it is."""
    total: int
    """Of the values of its key's events up to it; payments, where there are any, take away."""
    partner: int
    """The event it was joined with, if one of the other source was waiting."""
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
    """What an event is worth to its key."""
    return event * 31 % 97 + 1


def events_of(fast: int, slow: int, first: int = 0) -> dict[str, list[int]]:
    """All events by source, in order."""
    slowest = first + SLOW
    return {
        "fast": list(range(first, first + fast)),
        "slow": list(range(slowest, slowest + slow)),
    }


def totals(events: Iterable[int]) -> Iterable[tuple[int, int, int]]:
    """What a key makes of its events where all are alike: count, total, and no partner."""
    total = 0
    for n, event in enumerate(events, start=1):
        total += value_of(event)
        yield n, total, NO_PARTNER


def joined(events: Iterable[int]) -> Iterable[tuple[int, int, int]]:
    """What a key makes of its orders and payments: count, balance, and the one that is met."""
    balance, waiting = 0, {True: list[int](), False: list[int]()}
    for n, event in enumerate(events, start=1):
        is_payment = event >= SLOW
        balance += -value_of(event) if is_payment else value_of(event)
        partner = NO_PARTNER
        if waiting[not is_payment]:
            partner = waiting[not is_payment].pop(0)
        else:
            waiting[is_payment] = [*waiting[is_payment], event][-WAITING:]
        yield n, balance, partner
