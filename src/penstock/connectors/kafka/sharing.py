"""How many records of each partition a micro-batch takes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

__all__ = ["share"]

T = TypeVar("T", bound=Hashable)


def share(backlogs: Mapping[T, int], most: int) -> dict[T, int]:
    """Share ``most`` records among backlogs so that no one gets more at another's cost.

    Every backlog below an even share is taken whole, and what it leaves goes to the longer
    ones. Each gets one record at least, even where that makes more than ``most``: a partition
    that is never the longest would wait for ever.
    """
    shares: dict[T, int] = {}
    waiting = sorted((k for k, count in backlogs.items() if count > 0), key=lambda k: backlogs[k])
    left = most
    for index, key in enumerate(waiting):
        even = max(1, left // (len(waiting) - index))
        shares[key] = min(backlogs[key], even)
        left -= shares[key]
    return shares
