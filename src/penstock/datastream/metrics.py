"""Metrics of user functions.

Counters are exact: what a task counted is added to the job's total when its micro-batch is
published, once, however often the task was tried.
"""

from __future__ import annotations

__all__ = ["Counter", "MetricGroup"]


class Counter:
    """A number that a function counts up or down."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Add `n`."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Subtract `n`."""
        self._count -= n

    def get_count(self) -> int:
        """Return what this task has counted in the current micro-batch."""
        return self._count

    def take(self) -> int:
        """Return the count and start again at zero, at the end of a micro-batch."""
        count, self._count = self._count, 0
        return count


class MetricGroup:
    """The metrics of one operator, possibly in named groups below each other."""

    def __init__(self, counters: dict[str, Counter] | None = None, scope: str = "") -> None:
        self._counters = {} if counters is None else counters
        self._scope = scope

    def counter(self, name: str) -> Counter:
        """Return the counter of that name, made on first use."""
        return self._counters.setdefault(self._scope + name, Counter())

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return a group below this one; its counters carry the group's name in front."""
        scope = f"{self._scope}{name}." + (f"{extra}." if extra is not None else "")
        return MetricGroup(self._counters, scope)

    def take_counts(self) -> dict[str, int]:
        """Return what was counted since the last call, by full name."""
        return {name: n for name, c in self._counters.items() if (n := c.take())}
