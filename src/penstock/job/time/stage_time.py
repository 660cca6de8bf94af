"""The event time of one stage on the driver, and when its timers are due."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from penstock.channel.log import WatermarkStatus
from penstock.checkpoint.storage.metadata import InputWatermarkStatus, OperatorTime
from penstock.common.event_time import MAX_WATERMARK, MIN_WATERMARK
from penstock.common.watermark_strategy import WatermarkAlignment
from penstock.graph.job_graph import Node
from penstock.graph.plan import Stage
from penstock.ids import ChannelId
from penstock.job.time.split_generators import SplitGenerators
from penstock.job.time.watermarks import IdlenessClock, InputWatermarks, OperatorWatermarks
from penstock.recovery.channel_matching import ChannelEndpoints
from penstock.task.messages import Acknowledgement, MicroBatchTime, NextTimers


class StageTime:
    """The watermark of a stage, of its operators that generate watermarks, and its next timers."""

    def __init__(
        self,
        stage: Stage,
        restored: Mapping[str, OperatorTime],
        now: float,
        endpoints: Mapping[ChannelId, ChannelEndpoints],
    ) -> None:
        """Continue from a snapshot, by operator uid; `endpoints` include those of the inputs."""
        self.stage = stage
        self.is_restored = bool(restored)
        head = restored.get(stage.head.uid, OperatorTime())
        self._endpoints = {c.id: endpoints[c.id] for c in stage.inputs}
        # A job restored from a savepoint taken at the end of input has more input to come.
        reached = head.watermark if head.watermark < MAX_WATERMARK else MIN_WATERMARK
        self.inputs = InputWatermarks(self._endpoints, self._input_statuses(head.inputs), reached)
        self.status = WatermarkStatus(reached)
        """At the first operator of the stage."""
        first = NextTimers(head.next_event_timer, head.next_processing_timer)
        self.timers = [first] * stage.parallelism
        """Per subtask, a lower bound of when its first timers are due."""
        self._clock = IdlenessClock(now)
        self._generating = {
            node.id: _operator_watermarks(node, _rescaled(restored.get(node.uid), stage), now)
            for node in stage.nodes
            if node.watermarks is not None
        }
        self.generates_watermarks = bool(self._generating)
        if not stage.is_source:
            for operator in self._generating.values():
                operator.expect((f"#{i}" for i in range(stage.parallelism)), now)

    def _input_statuses(
        self, restored: Iterable[InputWatermarkStatus]
    ) -> dict[ChannelId, WatermarkStatus]:
        found = {
            (s.producer, s.input, s.ordinal): WatermarkStatus(s.watermark, s.is_idle)
            for s in restored
        }
        by_channel = {c: found.get(_input_key(ends)) for c, ends in self._endpoints.items()}
        return {c: status for c, status in by_channel.items() if status is not None}

    def status_after(self, node_id: int) -> WatermarkStatus:
        """Return the watermark status downstream of one of the stage's operators."""
        node = next(n for n in self.stage.nodes if n.id == node_id)
        generating = self.stage.watermark_step(node, itself=True)
        if generating is None or self.status.watermark == MAX_WATERMARK:
            return self.status
        return self._generating[generating.id].status(self._clock.reading)

    def watermarks(self) -> dict[str, tuple[int, int]]:
        """Return the watermarks before and after each operator, by uid; none without event time."""
        if self.status.watermark == MIN_WATERMARK and not self._generating:
            return {}
        after = {node.id: self.status_after(node.id).watermark for node in self.stage.nodes}
        head, head_watermark = self.stage.head, self.status.watermark
        return {
            str(node.uid): (
                head_watermark if node is head else after[node.inputs[0].source],
                after[node.id],
            )
            for node in self.stage.nodes
        }

    def aligned_operators(self) -> dict[str, tuple[WatermarkAlignment, WatermarkStatus]]:
        """Return, by uid, the operators in a watermark alignment group and their watermarks."""
        return {
            str(node.uid): (node.watermarks.alignment, self.status_after(node.id))
            for node in self.stage.nodes
            if node.watermarks is not None and node.watermarks.alignment is not None
        }

    def observe_input(self, now: float, *, blocked: bool, polled: bool) -> None:
        """Record whether input is blocked from now on, and whether it has just been polled."""
        self._clock.observe(now, blocked=blocked, polled=polled)

    def emit_periodic(self, interval: float, busy: Collection[str]) -> None:
        """Call the user-defined generators of splits without records."""
        for operator in self._generating.values():
            operator.emit_periodic(interval, busy, self._clock.reading)

    def micro_batch_time(self, watermark: int) -> MicroBatchTime:
        """Return the times for the tasks of a micro-batch that advances to a watermark."""
        return MicroBatchTime(
            watermark_before=self.status.watermark,
            watermark_after=watermark,
            downstream={
                node: operator.status(self._clock.reading).watermark
                for node, operator in self._generating.items()
            },
            generators={
                node: inputs
                for node, operator in self._generating.items()
                if (inputs := operator.generator_inputs())
            },
        )

    def apply_published(self, acks: Sequence[Acknowledgement], now: float) -> None:
        """Record the timers and watermarks that the tasks of a published micro-batch report."""
        self.timers = [ack.timers for ack in acks]
        for node, operator in self._generating.items():
            for ack in acks:
                operator.observe(ack.times.get(node, ()), self._clock.at(now), ack.name)

    def update_splits(
        self, splits: Collection[str], is_finished: Callable[[str], bool], now: float
    ) -> None:
        """Wait for the splits that the source has, and no longer for finished ones."""
        for operator in self._generating.values():
            operator.expect(splits, self._clock.at(now))
            operator.remove_finished([split for split in operator.splits if is_finished(split)])

    def has_event_timer_due(self, watermark: int) -> bool:
        """Whether a timer fires at a watermark; one set for the past waits for the next one."""
        if watermark <= self.status.watermark:
            return False
        return any(t.event is not None and t.event <= watermark for t in self.timers)

    def next_event_timer(self) -> int | None:
        """Return when the first event-time timer is due, in milliseconds."""
        return min((t.event for t in self.timers if t.event is not None), default=None)

    def next_processing_timer(self) -> int | None:
        """Return when the first processing-time timer is due, in milliseconds."""
        return min((t.processing for t in self.timers if t.processing is not None), default=None)

    def next_wakeup(self, interval: float | None) -> float | None:
        """Return when a split becomes idle or a generator is due to emit."""
        reading = self._clock.reading
        times = [operator.next_idle(reading) for operator in self._generating.values()]
        if interval is not None:
            times += [o.next_emit(interval, reading) for o in self._generating.values()]
        first = min((t for t in times if t is not None), default=None)
        return None if first is None else self._clock.when(first)

    def snapshot(self) -> dict[str, OperatorTime]:
        """Return what a checkpoint stores, by operator uid."""
        head = self.stage.head
        times = {
            str(node.uid): self._generating[node.id].snapshot()
            for node in self.stage.nodes
            if node.id in self._generating
        }
        times[head.uid] = replace(
            times.get(head.uid, OperatorTime()),
            watermark=self.status.watermark,
            next_event_timer=self.next_event_timer(),
            next_processing_timer=self.next_processing_timer(),
            inputs=[
                InputWatermarkStatus(
                    *_input_key(self._endpoints[c]), status.watermark, status.is_idle
                )
                for c, status in self.inputs.statuses.items()
                # An input that has ended announces its end again after a restore.
                if status.watermark < MAX_WATERMARK
            ],
        )
        return times


def _operator_watermarks(node: Node, restored: OperatorTime, now: float) -> OperatorWatermarks:
    assert node.watermarks is not None
    is_user_defined = node.watermarks.generator is not None
    generators = SplitGenerators(node, restored.generators) if is_user_defined else None
    return OperatorWatermarks(node.watermarks, restored, now, generators)


def _input_key(ends: ChannelEndpoints) -> tuple[str, int, int]:
    """Return what identifies an input of an operator across attempts."""
    return ends.producer.uid, ends.channel.input, ends.ordinal


def _rescaled(restored: OperatorTime | None, stage: Stage) -> OperatorTime:
    """Return the restored time of an operator, reset to its minimum after a rescale."""
    if restored is None or stage.is_source:
        return restored or OperatorTime()
    names = [f"#{i}" for i in range(stage.parallelism)]
    if set(names) == set(restored.splits):
        return restored
    lowest = min(restored.splits.values(), default=MIN_WATERMARK)
    # A generator belongs to one old subtask and cannot be assigned to a new one.
    return replace(restored, splits=dict.fromkeys(names, lowest), idle=[], generators={})
