"""Which host each partition of an anchor shall be on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

__all__ = ["Newcomers", "spread"]


def spread(homes: Sequence[str | None], room: Mapping[str, int]) -> list[str]:
    """Return a host for each partition: the one it has, if no host has too many then.

    `room` says how many cores each host has; some must be there. A partition that moves costs
    its state being built anew, so no more move than it takes.
    """
    places = [home if home in room else None for home in homes]
    count = Counter(place for place in places if place is not None)
    hosts = sorted(room)

    def emptiest() -> str:
        return min(hosts, key=lambda host: (count[host] + 1) / room[host])

    for partition, place in enumerate(places):
        if place is None:
            places[partition] = host = emptiest()
            count[host] += 1
    while True:
        fullest = max(hosts, key=lambda host: count[host] / room[host])
        target = emptiest()
        if count[fullest] / room[fullest] <= (count[target] + 1) / room[target]:
            return [place for place in places if place is not None]
        last = max(i for i, place in enumerate(places) if place == fullest)
        places[last] = target
        count[fullest] -= 1
        count[target] += 1


class Newcomers:
    """Tells when executors have come and no more seem to come.

    They come in bunches, so what was seen once is believed when it is seen again.
    """

    def __init__(
        self,
        look: Callable[[], frozenset[str]],
        interval_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._interval_s = interval_s
        self._clock = clock
        self._looked = clock()
        self._known = self._seen = look()

    def have_come(self) -> bool:
        """Look, if the last look is some time ago; true once for every bunch."""
        now = self._clock()
        if now - self._looked < self._interval_s:
            return False
        self._looked = now
        before, self._seen = self._seen, self._look()
        if before != self._seen:
            return False
        come = bool(self._seen - self._known)
        self._known = self._seen
        return come
