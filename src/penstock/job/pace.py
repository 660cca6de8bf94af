"""Sources that wait for each other: watermark alignment."""

from __future__ import annotations

import threading

from penstock.channel.log import Clock
from penstock.common.event_time import MAX_WATERMARK
from penstock.common.watermark_strategy import WatermarkAlignment

__all__ = ["Pace"]


class Pace:
    """What the sources of every group have come to; asked and told by the loops of a job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, dict[str, Clock]] = {}

    def tell(self, alignment: WatermarkAlignment, who: str, clock: Clock) -> bool:
        """Say how far one of a group has come; return whether that is news."""
        with self._lock:
            group = self._groups.setdefault(alignment.group, {})
            before, group[who] = group.get(who), clock
            return before != clock

    def is_ahead(self, alignment: WatermarkAlignment, who: str) -> bool:
        """Whether one has to wait for the others of its group.

        Those that are idle or at their end are not waited for.
        """
        with self._lock:
            group = dict(self._groups.get(alignment.group, {}))
        mine = group.pop(who, Clock())
        others = [c.watermark for c in group.values() if not c.is_idle]
        least = min((w for w in others if w < MAX_WATERMARK), default=None)
        return least is not None and mine.watermark > least + alignment.max_drift.to_millis()
