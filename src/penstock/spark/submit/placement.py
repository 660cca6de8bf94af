"""Decides on which host each partition of an anchor should be."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence


def place_partitions(homes: Sequence[str | None], cores: Mapping[str, int]) -> list[str]:
    """Return a host for each partition, and keep partitions on their host as far as possible.

    `cores` has at least one host. Moving a partition means loading the state of its subtask on
    another host, so no more partitions move than are needed for an even load per core.
    """
    places = [home if home in cores else None for home in homes]
    count = Counter(place for place in places if place is not None)
    hosts = sorted(cores)

    def least_loaded() -> str:
        return min(hosts, key=lambda host: (count[host] + 1) / cores[host])

    for partition, place in enumerate(places):
        if place is None:
            places[partition] = host = least_loaded()
            count[host] += 1
    while True:
        fullest = max(hosts, key=lambda host: count[host] / cores[host])
        target = least_loaded()
        if count[fullest] / cores[fullest] <= (count[target] + 1) / cores[target]:
            return [place for place in places if place is not None]
        last = max(i for i, place in enumerate(places) if place == fullest)
        places[last] = target
        count[fullest] -= 1
        count[target] += 1


class ExecutorWatch:
    """Notices when executors have joined.

    Executors join in groups, so a change is reported only when the next look finds no other.
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

    def have_joined(self) -> bool:
        """Look if the interval has passed; return True once for every group of new executors."""
        now = self._clock()
        if now - self._looked < self._interval_s:
            return False
        self._looked = now
        before, self._seen = self._seen, self._look()
        if before != self._seen:
            return False
        have_joined = bool(self._seen - self._known)
        self._known = self._seen
        return have_joined
