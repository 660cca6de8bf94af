"""Totals that only grow, with their rates over the last minute, as Flink's MeterView has them."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

SPAN_S = 60.0
_EVERY_S = 5.0
"""How far apart the readings are that rates refer to."""
_SHORTEST_S = 1.0

K = TypeVar("K", bound=Hashable)


class RateTotals(Generic[K]):
    """Totals by key; not safe for several threads.

    Unlike Flink's, a rate before the first minute is over refers to the time that has passed.
    """

    def __init__(self, now: float) -> None:
        self.values: dict[K, float] = {}
        self._readings: deque[tuple[float, dict[K, float]]] = deque([(now, {})])
        """Of the last minute and a little longer, oldest first."""
        self._added = now

    def prepare(self, now: float) -> None:
        """Note the totals before they grow; called before every group of calls of `add`."""
        if now - self._readings[-1][0] >= _EVERY_S:
            self._readings.append((now, dict(self.values)))
        while len(self._readings) > 1 and self._readings[1][0] <= now - SPAN_S:
            self._readings.popleft()
        self._added = now

    def add(self, key: K, amount: float) -> None:
        """Add to a total."""
        self.values[key] = self.values.get(key, 0) + amount

    def rates(self, now: float) -> dict[K, float]:
        """Return how much the totals have grown per second."""
        if self._added <= now - SPAN_S:
            return dict.fromkeys(self.values, 0.0)
        since, before = self._readings[0]
        for reading in self._readings:
            if reading[0] <= now - SPAN_S:
                since, before = reading
        seconds = max(now - since, _SHORTEST_S)
        return {key: (value - before.get(key, 0)) / seconds for key, value in self.values.items()}
