"""Combines the watermarks of splits, of inputs, and of aligned sources."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from penstock.channel.log import WatermarkStatus
from penstock.checkpoint.storage.metadata import OperatorTime
from penstock.common.event_time import MAX_WATERMARK, MIN_WATERMARK
from penstock.common.watermark_strategy import (
    WatermarkAlignment,
    WatermarkOutput,
    WatermarkStrategy,
)
from penstock.ids import ChannelId
from penstock.job.time.split_generators import SplitGenerators
from penstock.task.messages import GeneratorInput, SplitWatermark


class IdlenessClock:
    """Time that counts towards the idle timeout, by a clock that is never set.

    A split that was not polled cannot be called idle. So the clock advances only when input was
    polled, and time during which input is blocked does not count at all.
    """

    def __init__(self, now: float) -> None:
        self.reading = now
        self._last = now
        self._blocked_seconds = 0.0
        self._is_blocked = False

    def observe(self, now: float, *, blocked: bool, polled: bool) -> None:
        """Record whether input is blocked from now on, and whether it has just been polled."""
        if self._is_blocked:
            self._blocked_seconds += now - self._last
        self._last, self._is_blocked = now, blocked
        if polled and not blocked:
            self.reading = now - self._blocked_seconds

    def at(self, now: float) -> float:
        """Return the reading as if input had been polled now."""
        return (self._last if self._is_blocked else now) - self._blocked_seconds

    def when(self, reading: float) -> float | None:
        """Return the processing time of a future reading, None while the clock is stopped."""
        return None if self._is_blocked else reading + self._blocked_seconds


@dataclass(slots=True)
class _Split:
    watermark: int
    active: float
    """When it last had records."""
    emitted: float
    """When its generator last emitted a watermark."""
    is_idle: bool = False
    """Whether its generator marked it idle."""


class OperatorWatermarks:
    """The watermark of an operator with a watermark strategy: the minimum over its splits.

    Downstream of an exchange each subtask counts as one split. All times are readings of the
    stage's `IdlenessClock`.
    """

    def __init__(
        self,
        strategy: WatermarkStrategy,
        restored: OperatorTime,
        now: float,
        generators: SplitGenerators | None = None,
    ) -> None:
        timeout = strategy.idle_timeout
        self._timeout = None if timeout is None else timeout.to_millis() / 1000
        self._generators = generators
        self._splits = {
            name: _Split(watermark, now, now, name in restored.idle)
            for name, watermark in restored.splits.items()
        }
        self._emitted = restored.emitted
        self._started = now

    @property
    def splits(self) -> Collection[str]:
        """The splits that hold back the watermark."""
        return self._splits.keys()

    def observe(self, splits: Iterable[SplitWatermark], now: float, version: str = "") -> None:
        """Record the watermarks of a task attempt; a split read in pieces counts its furthest."""
        for seen in splits:
            split = self._splits.setdefault(seen.split, _Split(MIN_WATERMARK, now, now))
            split.watermark = max(split.watermark, seen.watermark)
            split.active, split.emitted, split.is_idle = now, now, seen.is_idle
            if self._generators is not None and seen.generator is not None:
                self._generators.update(seen.split, seen.generator, version)

    def expect(self, names: Iterable[str], now: float) -> None:
        """Wait for splits that have produced nothing yet."""
        for name in names:
            self._splits.setdefault(name, _Split(MIN_WATERMARK, now, now))

    def remove_finished(self, finished: Collection[str]) -> None:
        """Stop waiting for finished splits; the last ones set the final watermark."""
        if finished and set(finished) >= self._splits.keys():
            self._emitted = max(self._emitted, *(s.watermark for s in self._splits.values()))
        for name in finished:
            self._splits.pop(name, None)
            if self._generators is not None:
                self._generators.remove(name)

    def emit_periodic(self, interval: float, busy: Collection[str], now: float) -> None:
        """Call `on_periodic_emit` of generators that have not emitted for an interval.

        Busy splits are left out: the tasks that read them call their generators.
        """
        if self._generators is None:
            return
        for name, split in self._splits.items():
            if name in busy or self._timed_out(split, now) or now - split.emitted < interval:
                continue
            output = WatermarkOutput()
            output.watermark, output.is_idle = split.watermark, split.is_idle
            self._generators.emit(name, output)
            split.watermark, split.is_idle, split.emitted = output.watermark, output.is_idle, now

    def generator_inputs(self) -> dict[str, GeneratorInput]:
        """Return the user-defined generators that the next micro-batch continues with."""
        if self._generators is None:
            return {}
        return {
            name: replace(state, is_idle=name in self._splits and self._splits[name].is_idle)
            for name, state in self._generators.inputs().items()
        }

    def status(self, now: float) -> WatermarkStatus:
        """Return the combined watermark; idle if all splits are."""
        active = [s.watermark for s in self._splits.values() if not self._is_idle(s, now)]
        if active:
            self._emitted = max(self._emitted, min(active))
            return WatermarkStatus(self._emitted)
        if self._splits:
            return WatermarkStatus(self._emitted, is_idle=True)
        timed_out = self._timeout is not None and now - self._started >= self._timeout
        return WatermarkStatus(self._emitted, is_idle=timed_out)

    def next_idle(self, now: float) -> float | None:
        """Return when the next split reaches the idle timeout."""
        if self._timeout is None:
            return None
        since = [s.active for s in self._splits.values() if not self._is_idle(s, now)]
        if not self._splits and now - self._started < self._timeout:
            since = [self._started]
        return min(since) + self._timeout if since else None

    def next_emit(self, interval: float, now: float) -> float | None:
        """Return when the next user-defined generator is due to emit."""
        if self._generators is None:
            return None
        emitted = [s.emitted for s in self._splits.values() if not self._timed_out(s, now)]
        return min(emitted) + interval if emitted else None

    def snapshot(self) -> OperatorTime:
        """Return what a checkpoint stores of these watermarks."""
        return OperatorTime(
            emitted=self._emitted,
            splits={name: split.watermark for name, split in self._splits.items()},
            idle=[name for name, split in self._splits.items() if split.is_idle],
            generators={} if self._generators is None else self._generators.snapshot(),
        )

    def _is_idle(self, split: _Split, now: float) -> bool:
        return split.is_idle or self._timed_out(split, now)

    def _timed_out(self, split: _Split, now: float) -> bool:
        return self._timeout is not None and now - split.active >= self._timeout


class InputWatermarks:
    """The minimum watermark of a stage's inputs that are not idle (Flink: StatusWatermarkValve)."""

    def __init__(
        self,
        channels: Iterable[ChannelId],
        restored: Mapping[ChannelId, WatermarkStatus] | None = None,
        current: int = MIN_WATERMARK,
    ) -> None:
        """Continue from the restored inputs of a stage whose watermark was `current`."""
        restored = restored or {}
        self.statuses = {c: restored.get(c, WatermarkStatus()) for c in channels}
        """The last status of each input."""
        self._lagging = {c for c, s in restored.items() if not s.is_idle and s.watermark < current}
        """Active again after being idle, and not yet as far as the stage."""

    def observe(
        self, statuses: Mapping[ChannelId, WatermarkStatus], current: int
    ) -> WatermarkStatus:
        """Record new statuses of some inputs; return the combined status."""
        for channel, status in statuses.items():
            before = self.statuses[channel]
            merged = WatermarkStatus(max(before.watermark, status.watermark), status.is_idle)
            self.statuses[channel] = merged
            if before.is_idle and not merged.is_idle:
                self._lagging.add(channel)
        active = {c: s.watermark for c, s in self.statuses.items() if not s.is_idle}
        self._lagging = {c for c in self._lagging if c in active and active[c] < current}
        if not active:
            return WatermarkStatus(max(s.watermark for s in self.statuses.values()), is_idle=True)
        # An input that comes back from idle must not hold back the watermark of the others.
        aligned = [watermark for c, watermark in active.items() if c not in self._lagging]
        return WatermarkStatus(min(aligned, default=current))


class WatermarkAlignmentGroup:
    """The watermarks of all aligned sources of a job, by alignment group.

    Shared by the region loops: each reports its own sources and reads those of the others, so
    every access takes the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, dict[str, WatermarkStatus]] = {}

    def report(self, alignment: WatermarkAlignment, source: str, status: WatermarkStatus) -> bool:
        """Record how far a source has come; return whether that changed."""
        with self._lock:
            group = self._groups.setdefault(alignment.group, {})
            before, group[source] = group.get(source), status
            return before != status

    def is_ahead(self, alignment: WatermarkAlignment, source: str) -> bool:
        """Whether a source must wait for others of its group that are neither idle nor ended."""
        with self._lock:
            group = dict(self._groups.get(alignment.group, {}))
        mine = group.pop(source, WatermarkStatus())
        others = [status.watermark for status in group.values() if not status.is_idle]
        lowest = min((w for w in others if w < MAX_WATERMARK), default=None)
        return lowest is not None and mine.watermark > lowest + alignment.max_drift.to_millis()
