"""Advances event time in the stages of a pipelined region.

Watermarks advance between micro-batches. The tasks of a micro-batch process its records at the
watermark of the one before, then advance to the minimum watermark of all inputs and fire the timers
that are due. If no timer is due no task runs: the driver records the new watermark and forwards it
downstream.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.channel.log import WatermarkStatus
from penstock.common.event_time import MAX_WATERMARK
from penstock.graph.plan import Channel
from penstock.ids import ChannelId, StageId
from penstock.job.time.stage_time import StageTime
from penstock.task.messages import MicroBatchTime


@dataclass(slots=True)
class RegionTime:
    """The event time of all stages of a region.

    A stage that gets its records by shuffle gets watermarks one micro-batch later: they are known
    only when the tasks upstream of it have ended.
    """

    stages: Sequence[StageTime]
    """In topological order."""
    outputs: Sequence[Channel]
    """The channels to other regions."""
    interval: float | None = None
    """How often user-defined generators emit without records, None for never."""
    _sent: dict[ChannelId, WatermarkStatus] = field(default_factory=dict)

    def observe_input(
        self, monotonic: float, busy: Collection[str], *, blocked: bool, polled: bool
    ) -> None:
        """Record whether input is blocked and which splits have records, if it was polled.

        Generators of the other splits may then emit. Not while input is blocked: the records that
        wait there would become late.
        """
        for time in self.stages:
            time.observe_input(monotonic, blocked=blocked, polled=polled)
            if self.interval is not None and polled and not blocked:
                time.emit_periodic(self.interval, busy)

    def plan(
        self, statuses: Mapping[ChannelId, WatermarkStatus], *, end: bool
    ) -> dict[StageId, WatermarkStatus]:
        """Return how far each stage advances, given new statuses of the region's inputs."""
        if end:
            return {time.stage.id: WatermarkStatus(MAX_WATERMARK) for time in self.stages}
        goals: dict[StageId, WatermarkStatus] = {}
        by_stage = {time.stage.id: time for time in self.stages}
        for time in self.stages:
            stage, is_head = time.stage, time is self.stages[0]
            if is_head and stage.is_source:
                goals[stage.id] = time.status
                continue
            if not is_head:
                statuses = {
                    c.id: by_stage[c.producer].status_after(c.source_node) for c in stage.inputs
                }
            found = time.inputs.observe(statuses, time.status.watermark)
            watermark = max(time.status.watermark, found.watermark)
            goals[stage.id] = WatermarkStatus(watermark, is_idle=found.is_idle)
        return goals

    def has_timer_due(self, goals: Mapping[StageId, WatermarkStatus], now: float) -> bool:
        """Whether a timer fires if stages advance to these goals."""
        return any(
            time.has_event_timer_due(goals[time.stage.id].watermark)
            or ((at := time.next_processing_timer()) is not None and at <= now * 1000)
            for time in self.stages
        )

    def micro_batch_times(
        self, goals: Mapping[StageId, WatermarkStatus]
    ) -> dict[StageId, MicroBatchTime]:
        """Return the times for the tasks of each stage."""
        return {t.stage.id: t.micro_batch_time(goals[t.stage.id].watermark) for t in self.stages}

    def advance(self, goals: Mapping[StageId, WatermarkStatus]) -> None:
        """Advance all stages: the micro-batch has run, or no task was needed."""
        for time in self.stages:
            time.status = goals[time.stage.id]

    def take_updates(self) -> dict[ChannelId, WatermarkStatus]:
        """Return the statuses to forward to other regions, each one once."""
        updates = self._updates()
        self._sent |= updates
        return updates

    def _updates(self) -> dict[ChannelId, WatermarkStatus]:
        by_stage = {time.stage.id: time for time in self.stages}
        updates = {}
        for channel in self.outputs:
            time = by_stage[channel.producer]
            # A restored consumer may have stored another status than the initial one.
            initial = None if time.is_restored else WatermarkStatus()
            status = time.status_after(channel.source_node)
            # The maximum watermark is sent with the end of input.
            if status.watermark < MAX_WATERMARK and status != self._sent.get(channel.id, initial):
                updates[channel.id] = status
        return updates

    def has_work(self, now: float) -> bool:
        """Whether a timer is due, or a status changed without input: idle, or active again."""
        current = {time.stage.id: time.status for time in self.stages}
        return (
            self.has_timer_due(current, now)
            or bool(self._updates())
            or self.plan({}, end=False) != current
        )

    def wait_seconds(self, now: float, monotonic: float) -> float | None:
        """Return in how many seconds there may be work without input, None for never.

        Timers are set in processing time, `now`; idleness is a duration.
        """
        waits = [
            at / 1000 - now
            for time in self.stages
            if (at := time.next_processing_timer()) is not None
        ]
        wakeups = [t.next_wakeup(self.interval) for t in self.stages]
        waits += [w - monotonic for w in wakeups if w is not None]
        return max(0.0, min(waits)) if waits else None
