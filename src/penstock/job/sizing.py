"""How many records the next micro-batch should take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """What micro-batch sizes aim at and stay within."""

    target_seconds: float
    initial: int
    maximum: int
    minimum: int = 1000


def next_size(
    size: int, records: int, seconds: float, working_seconds: float, limits: SizeLimits
) -> int:
    """Return the size after a micro-batch of `records` took `seconds`.

    Of these its slowest task worked `working_seconds`; the rest is what a micro-batch costs
    whatever its size. Where that alone is near the target, a smaller batch would not be quicker
    but only waste more: work never aims below it. A batch that was not full says nothing about
    how much more would have fitted, unless it was too slow already.
    """
    if records <= 0 or working_seconds <= 0:
        return size
    fixed = max(0.0, seconds - working_seconds)
    wanted = max(limits.target_seconds - fixed, fixed)
    fitting = records * wanted / working_seconds
    if records < size * 0.5 and fitting >= records:
        return size
    bounded = min(max(fitting, min(size, records) * 0.5), size * 4)
    return int(min(max(bounded, limits.minimum), limits.maximum))


def is_light(size: int, records: int, seconds: float, working_seconds: float) -> bool:
    """Tell whether a micro-batch cost hardly more than an empty one, and could have held more.

    It took `seconds`, of which its slowest task worked `working_seconds`: with twice the records
    it would have taken about as long.
    """
    return records * 2 < size and working_seconds * 4 < seconds


def size_for_consumers(size: int, wanted: Iterable[tuple[int, float]], limits: SizeLimits) -> int:
    """Return `size`, or less where a consumer likes to take less at once.

    `wanted` holds, for each output, how many records its consumer likes and how many records
    this stage made out of one: what is published in one piece is consumed in one piece.
    """
    fitting = [int(records / made) for records, made in wanted if made > 0]
    return max(min([size, *fitting]), min(size, limits.minimum))
