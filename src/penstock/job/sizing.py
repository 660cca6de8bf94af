"""How many records the next micro-batch should take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """What micro-batch sizes aim at and stay within."""

    target_seconds: float
    initial: int
    maximum: int
    minimum: int = 100


def next_size(size: int, records: int, seconds: float, limits: SizeLimits) -> int:
    """Return the size after a micro-batch of `records` took `seconds`.

    A batch that was not full says nothing about how much more would have fitted, unless it
    was too slow already.
    """
    if records <= 0 or seconds <= 0:
        return size
    fitting = records * limits.target_seconds / seconds
    if records < size * 0.5 and fitting >= records:
        return size
    bounded = min(max(fitting, size * 0.5), size * 4)
    return int(min(max(bounded, limits.minimum), limits.maximum))
