"""The orders, made from a seed alone, and what the job has to make of them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

PARTITIONS = 4
CUSTOMERS = 499
NOTES = (
    "",
    "gift",
    "tab\there",
    "back\\slash",
    "\\N",
    "\\.",
    'the "blue" one',
    "東京, naïve",
    "a\nb",
)
"""Some of what a file format or a COPY may stumble over."""


class Order(NamedTuple):
    """One order of a customer."""

    id: int
    customer: str
    cents: int
    note: str

    @property
    def partition(self) -> int:
        """Its partition in the topic: all orders of a customer are in one."""
        return int(self.customer[1:]) % PARTITIONS


class Total(NamedTuple):
    """What the job makes of an order: the how manieth of its customer, and the sum so far."""

    order: int
    customer: str
    n: int
    total: int
    note: str


def orders(seed: int, number: int) -> list[Order]:
    """Make orders; a few customers make most of them."""
    rng = random.Random(seed)
    # The weights fall like 1/rank, as those of real customers do.
    weights = list(accumulate(1 / rank for rank in range(1, CUSTOMERS + 1)))
    who = rng.choices(range(CUSTOMERS), cum_weights=weights, k=number)
    cents = rng.choices(range(1, 100_000), k=number)
    notes = rng.choices(NOTES, k=number)
    return [
        Order(id_, f"c{customer:03}", worth, note)
        for id_, (customer, worth, note) in enumerate(zip(who, cents, notes, strict=True))
    ]


def totals(made: Iterable[Order]) -> Iterator[Total]:
    """Say what the job has to make of orders, each customer's in order."""
    so_far: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for order in made:
        n, total = so_far[order.customer]
        n, total = so_far[order.customer] = (n + 1, total + order.cents)
        yield Total(order.id, order.customer, n, total, order.note)


def stops(made: Iterable[Order]) -> list[int]:
    """Count the orders of each partition: where the job stops."""
    counts = [0] * PARTITIONS
    for order in made:
        counts[order.partition] += 1
    return counts
