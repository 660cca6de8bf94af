"""Counts what the regions of an attempt process, and notices when they have caught up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from penstock.checkpoint.history import LoadStats
from penstock.ids import StageId

_FULL = 0.9
"""Of the records that a micro-batch may have; sources only estimate how many a range holds."""


@dataclass(frozen=True, slots=True)
class RegionLoad:
    """What one region has processed so far."""

    records: int = 0
    batches: int = 0
    busy_s: float = 0.0
    working_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LoadMark:
    """The counts of all regions at one moment."""

    time: float
    records: int
    """Read by the sources."""
    regions: Mapping[StageId, RegionLoad]


@dataclass(frozen=True, slots=True)
class CatchUp:
    """How an attempt caught up with its sources; seconds since its start."""

    began_s: float
    """When the region whose tasks worked the longest began its first micro-batch with records."""
    caught_up_s: float
    records: int
    """Read by the sources, and processed by that region in between."""


@dataclass(slots=True)
class _Progress:
    """How far one region is on its way back to normal."""

    upstream: Collection[StageId]
    began: float | None = None
    """When its first micro-batch with records began."""
    caught_up: float | None = None
    load: RegionLoad = field(default_factory=RegionLoad)


class LoadTracker:
    """The load of one attempt; region loops add to it, the coordinator's thread reads it.

    A region has caught up when it has taken all its input in one micro-batch of a normal size for
    the first time after the regions upstream of it had caught up.
    """

    def __init__(
        self,
        upstream: Mapping[StageId, Collection[StageId]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Track the regions of an attempt, each with those it reads from; sources have none."""
        self._clock = clock
        self._lock = threading.Lock()
        self._regions = {region: _Progress(before) for region, before in upstream.items()}
        self._started = clock()
        self._records = 0
        self._catch_up: CatchUp | None = None

    def start(self) -> None:
        """Count the time until the attempt has caught up from now on."""
        with self._lock:
            self._started = self._clock()

    def record_published(
        self,
        region: StageId,
        records: int,
        normal: int,
        began: float,
        working_s: float,
    ) -> None:
        """Take note of a micro-batch, which began at `began` by the clock.

        With fewer than `normal` records it has taken all there were, in about the target duration.
        """
        with self._lock:
            progress, now = self._regions[region], self._clock()
            before = progress.load
            progress.load = RegionLoad(
                before.records + records,
                before.batches + 1,
                before.busy_s + now - began,
                before.working_s + working_s,
            )
            if records == 0:
                return
            if not progress.upstream:
                self._records += records
            if progress.began is None:
                progress.began = began
            if records < normal * _FULL:
                self._took_everything(progress, began, now)

    def record_no_input(self, region: StageId) -> None:
        """Take note that a region could have processed records, and there were none."""
        if self._catch_up is not None:
            return  # before the lock: idle regions come here often
        with self._lock:
            progress = self._regions[region]
            # At first a source may not yet know what there is.
            if progress.began is not None:
                now = self._clock()
                self._took_everything(progress, now, now)

    def _took_everything(self, progress: _Progress, since: float, now: float) -> None:
        if progress.caught_up is not None:
            return
        for upstream in progress.upstream:
            until = self._regions[upstream].caught_up
            if until is None or until > since:
                return
        progress.caught_up = now
        regions = self._regions.values()
        if all(p.caught_up is not None for p in regions):
            began = max(regions, key=lambda p: p.load.working_s).began
            self._catch_up = CatchUp(
                (now if began is None else began) - self._started,
                now - self._started,
                self._records,
            )

    @property
    def catch_up(self) -> CatchUp | None:
        """How the attempt caught up, None as long as it has not."""
        return self._catch_up

    def mark(self) -> LoadMark:
        """Return the counts as they are now."""
        with self._lock:
            loads = {region: progress.load for region, progress in self._regions.items()}
            return LoadMark(self._clock(), self._records, loads)


def load_between(start: LoadMark, end: LoadMark, region: StageId | None) -> LoadStats:
    """Return what was processed between two marks, with details of one region."""
    seconds = max(0.0, end.time - start.time)
    records = end.records - start.records
    if region is None:
        return LoadStats(seconds, records)
    before, after = start.regions[region], end.regions[region]
    return LoadStats(
        seconds=seconds,
        records=records,
        region_records=after.records - before.records,
        batches=after.batches - before.batches,
        busy_s=max(0.0, after.busy_s - before.busy_s),
        working_s=max(0.0, after.working_s - before.working_s),
    )


def busiest_region(start: LoadMark, end: LoadMark) -> StageId | None:
    """Return the region whose tasks worked the longest, None if there are none.

    Not the one whose micro-batches took the longest: they may have waited for that one.
    """

    def work(region: StageId) -> tuple[float, float]:
        before, after = start.regions[region], end.regions[region]
        return after.working_s - before.working_s, after.busy_s - before.busy_s

    return max(end.regions, key=work, default=None)
