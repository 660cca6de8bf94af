"""One stage of a group as its loop drives it: what its tasks are told, what they have done."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.channel.segment import Segment
from penstock.connectors.sink import SinkPublisher
from penstock.datastream.functions import Function
from penstock.graph.plan import Stage
from penstock.ids import ChannelId, CheckpointId, StageId
from penstock.job.event_time import StageTime
from penstock.job.inputs import Taken
from penstock.job.manifest import StageManifest, add_counts
from penstock.job.report import MicroBatchReport
from penstock.job.stage_snapshot import StageSnapshots
from penstock.job.stage_state import StageState
from penstock.state.backends.base import StateRef
from penstock.task.layout import Layout
from penstock.task.messages import Acknowledgement, Instruction, Notice, SubtaskWork, TimeOrder

logger = logging.getLogger("penstock.job")


@dataclass(frozen=True, slots=True)
class MemberParts:
    """What a member works with; made once by the attempt."""

    stage: Stage
    layout: Layout
    state: StageState
    publishers: Mapping[int, SinkPublisher]
    snapshots: StageSnapshots
    time: StageTime


@dataclass(frozen=True, slots=True)
class Order:
    """What all stages of a group are told about a micro-batch."""

    taken: Taken
    notices: Mapping[StageId, list[Notice]]
    """By stage."""
    passed: CheckpointId
    keep_open: bool
    close: bool = False
    times: Mapping[StageId, TimeOrder] = field(default_factory=dict)
    """By stage."""


@dataclass(frozen=True, slots=True)
class Done:
    """What the winning tasks of one stage did in a micro-batch."""

    acks: list[Acknowledgement]
    states: list[StateRef]
    segments: dict[ChannelId, list[Segment]]
    """Per channel to another group, what was written."""
    counters: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """How many records came in."""
        return sum(a.records_in for a in self.acks)

    @property
    def phases(self) -> dict[str, float]:
        """Seconds of the slowest task, by what for."""
        return max((a.phases for a in self.acks), key=lambda p: sum(p.values()), default={})


class Member:
    """A stage, the number of its micro-batch, and who ran the last one."""

    def __init__(self, parts: MemberParts) -> None:
        self._parts = parts
        self.stage = parts.stage
        self.state = parts.state
        self.snapshots = parts.snapshots
        self.time = parts.time
        self.batch = parts.state.version
        """The last one that was begun."""
        self._winners: list[str | None] = [None] * parts.stage.parallelism
        self._warned: set[str] = set()

    def instruction(self, order: Order, try_number: int, now: int, *, is_head: bool) -> Instruction:
        """Return what the tasks of one try are told; inside a group their input comes to them."""
        taken = order.taken
        nothing = [SubtaskWork()] * self.stage.parallelism
        work = [
            SubtaskWork(
                ranges=w.ranges,
                segments=w.segments,
                state=self.state.ref(i),
                previous=self._winners[i],
                operator_state=self.state.operator_state(i),
                timers=self.time.timers[i],
                restored=self.state.is_restored,
            )
            for i, w in enumerate(taken.work if is_head else nothing)
        ]
        return Instruction(
            job=str(self._parts.layout.shared),
            attempt=self._parts.layout.attempt,
            stage=self.stage.id,
            batch=self.batch,
            try_number=try_number,
            work=work,
            now=now,
            end_of_input=taken.end_of_input,
            key_slice=taken.key_slice,
            checkpoint=taken.barrier,
            passed=order.passed,
            snapshot=self.state.wants_snapshot(at_barrier=taken.barrier is not None),
            notices=order.notices.get(self.stage.id, []),
            time=order.times.get(self.stage.id, TimeOrder()),
            keep_open=order.keep_open,
            close=order.close,
        )

    def done(self, acks: list[Acknowledgement], outputs: Mapping[ChannelId, object]) -> Done:
        """Gather what the tasks did; nothing of it counts yet."""
        counters: dict[str, dict[str, int]] = {}
        for ack in acks:
            add_counts(counters, ack.counters)
        mine = [c.id for c in self.stage.outputs if c.id in outputs]
        return Done(
            acks,
            self.state.after(self.batch, acks),
            {c: [o.segment for a in acks for o in a.outputs if o.channel == c] for c in mine},
            counters,
        )

    def manifest(self, done: Done, try_number: int, taken: Taken | None) -> StageManifest:
        """Return what of a micro-batch is published; `taken` is the input from outside, if any."""
        return StageManifest(
            stage=self.stage.id,
            batch=self.batch,
            try_number=try_number,
            winners=[a.name for a in done.acks],
            positions={} if taken is None else taken.positions,
            consumed={} if taken is None else {int(c): n for c, n in taken.consumed.items()},
            segments={int(c): s for c, s in done.segments.items()},
            state=[s for s in done.states if s.inline is None],
            records_in=done.records,
            counters=done.counters,
        )

    def accept(self, done: Done) -> None:
        """Go on from here: the micro-batch is published."""
        self.state.accept(self.batch, done.states, done.acks)
        self._winners = [a.name for a in done.acks]

    def publish_sinks(self, done: Done) -> None:
        """Hand to the sinks what their tasks staged, and remove what others staged in vain."""
        for node_id, publisher in self._parts.publishers.items():
            publisher.publish([a.sinks.get(node_id, b"") for a in done.acks])
        for node_id in self._parts.publishers:
            uid = next(n.uid for n in self.stage.nodes if n.id == node_id)
            staging = self._parts.layout.staging(uid)
            if staging.exists():
                shutil.rmtree(staging, ignore_errors=True)

    def report(self, done: Done, tries: int, times: tuple[float, float, float]) -> MicroBatchReport:
        """Return what to tell of a published micro-batch."""
        started, acknowledged, published = times
        return MicroBatchReport(
            stage=self.stage.id,
            stage_name=self.stage.name,
            batch=self.batch,
            tries=tries,
            started=started,
            acknowledged=acknowledged,
            published=published,
            records_in=done.records,
            records_out=sum(a.records_out for a in done.acks),
            phases=done.phases,
            homes=tuple(a.home for a in done.acks),
            figures={a.subtask: a.figures for a in done.acks if a.figures},
        )

    def wants_close(self) -> bool:
        """Whether a function waits to be closed."""
        functions = [n.function for n in self.stage.nodes if isinstance(n.function, Function)]
        return self.batch > 0 and any(type(f).close is not Function.close for f in functions)

    def warn_of_changed_fields(self, done: Done) -> None:
        """Warn once per step of what will not last."""
        for ack in done.acks:
            for step, names in ack.changed_fields.items():
                if step not in self._warned:
                    self._warned.add(step)
                    logger.warning(
                        "step %r changed its fields %s after open(): plain fields do not survive "
                        "a micro-batch; keep what must last in keyed state",
                        step,
                        ", ".join(sorted(names)),
                    )
