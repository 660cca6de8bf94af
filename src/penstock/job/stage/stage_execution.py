"""The execution of one stage: instructions for its tasks, and what their results change."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from penstock.channel.segment import Segment
from penstock.connectors.contracts.sink import SinkPublisher
from penstock.datastream.functions import Function
from penstock.graph.plan import Stage
from penstock.ids import ChannelId, CheckpointId, StageId
from penstock.job.context import AttemptContext
from penstock.job.input.source_input import SourceInput
from penstock.job.input.stage_input import MicroBatchInput
from penstock.job.reports import MicroBatchReport
from penstock.job.restore.state_restorer import RestoredStage
from penstock.job.snapshot.channel_state_writer import ChannelStateWriter, RecordEvent
from penstock.job.snapshot.source_files import SourceFiles
from penstock.job.snapshot.stage_snapshotter import StageSnapshotter
from penstock.job.snapshot.stage_state import StageState
from penstock.job.stage.manifest import StageManifest, add_counts
from penstock.job.time.stage_time import StageTime
from penstock.state.backends.refs import StateRef, staged_prefix
from penstock.task import messages
from penstock.task.relayed_files import fetch_relayed
from penstock.task.staged_files import remove_staged

logger = logging.getLogger("penstock.job")


@dataclass(frozen=True, slots=True)
class MicroBatchRequest:
    """What the tasks of all stages of a region are to do in one micro-batch."""

    input: MicroBatchInput
    notifications: Mapping[StageId, list[messages.CheckpointNotification]]
    """By stage."""
    passed: CheckpointId
    """The last checkpoint that the region took part in, or was restored from."""
    keep_open: bool
    close: bool = False
    times: Mapping[StageId, messages.MicroBatchTime] = field(default_factory=dict)
    """By stage."""


@dataclass(frozen=True, slots=True)
class MicroBatchRun:
    """A micro-batch whose tasks have all succeeded; nothing of it is published yet."""

    acks: Sequence[list[messages.Acknowledgement]]
    """Per stage of the region."""
    try_number: int
    started: float
    acknowledged: float
    began: float
    """When it started, by the monotonic clock."""


@dataclass(frozen=True, slots=True)
class MicroBatchResult:
    """What the winning tasks of one stage did in a micro-batch."""

    acks: list[messages.Acknowledgement]
    states: list[StateRef]
    segments: dict[ChannelId, list[Segment]]
    """Per channel to another region, what was written."""
    counters: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """How many records the tasks read."""
        return sum(a.records_in for a in self.acks)

    @property
    def phases(self) -> dict[str, float]:
        """Seconds of the slowest task, by phase."""
        return max((a.phases for a in self.acks), key=lambda p: sum(p.values()), default={})


class StageExecution:
    """One stage of a region: its state, time, sinks and snapshots, driven by the region loop."""

    def __init__(
        self,
        context: AttemptContext,
        stage: Stage,
        publishers: Mapping[int, SinkPublisher],
        source: SourceInput | None,
        record: RecordEvent,
    ) -> None:
        """Start from the restored state; `record` adds to a checkpoint's event log."""
        self.stage = stage
        self._layout = context.layout
        self._registry = context.registry
        self._publishers = publishers
        restored = context.restored.stages.get(stage.id, RestoredStage())
        self.state = StageState(stage, context, restored)
        self.time = StageTime(stage, restored.time, context.job.monotonic(), context.endpoints)
        channels = ChannelStateWriter(
            [context.endpoints[c.id] for c in stage.inputs if c.id in context.logs],
            context.layout,
            context.job.job_dir.checkpoint_dir,
            record,
        )
        files = SourceFiles(stage.head.uid, context.layout.durable)
        self.snapshots = StageSnapshotter(
            stage, self.state, self.time, publishers, source, channels, files
        )
        self.batch = self.state.version
        """The number of the last micro-batch that was started."""
        self._winners: list[str | None] = [None] * stage.parallelism
        """Per subtask, the task attempt that won the last micro-batch."""
        self._unneeded: list[list[str]] = []
        """Per subtask, state files that its task has to delete in the running micro-batch."""
        self._warned: set[str] = set()

    def instruction(
        self, request: MicroBatchRequest, try_number: int, now: int, *, is_head: bool
    ) -> messages.Instruction:
        """Return the instruction for one try; only the head of a region reads its input."""
        if try_number == 0:
            self._unneeded = self.state.take_unneeded()
        batch = request.input
        no_work = [messages.SubtaskWork()] * self.stage.parallelism
        work = [
            replace(
                w,
                state=self.state.ref(i),
                previous=self._winners[i],
                operator_state=self.state.operator_state(i),
                # Processing-time timers do not fire at the end of the job.
                timers=messages.NextTimers() if request.close else self.time.timers[i],
                restored=self.state.is_restored,
                unneeded=self._unneeded[i],
            )
            for i, w in enumerate(batch.work if is_head else no_work)
        ]
        return messages.Instruction(
            job=str(self._layout.shared),
            attempt=self._layout.attempt,
            stage=self.stage.id,
            batch=self.batch,
            try_number=try_number,
            work=work,
            now=now,
            end_of_input=batch.end_of_input,
            key_slice=batch.key_slice,
            checkpoint=batch.barrier,
            passed=request.passed,
            snapshot=self.state.wants_snapshot(at_barrier=batch.barrier is not None),
            notifications=request.notifications.get(self.stage.id, []),
            time=request.times.get(self.stage.id, messages.MicroBatchTime()),
            keep_open=request.keep_open,
            close=request.close,
        )

    def result(
        self, acks: list[messages.Acknowledgement], outputs: Mapping[ChannelId, object]
    ) -> MicroBatchResult:
        """Collect what the tasks did; nothing of it is published yet."""
        counters: dict[str, dict[str, int]] = {}
        for ack in acks:
            add_counts(counters, ack.counters)
        written = [c.id for c in self.stage.outputs if c.id in outputs]
        return MicroBatchResult(
            acks,
            self.state.after(self.batch, acks),
            {c: [o.segment for a in acks for o in a.outputs if o.channel == c] for c in written},
            counters,
        )

    def manifest(
        self, result: MicroBatchResult, try_number: int, batch: MicroBatchInput | None
    ) -> StageManifest:
        """Return what a micro-batch publishes; only the head of a region has an input."""
        return StageManifest(
            stage=self.stage.id,
            batch=self.batch,
            try_number=try_number,
            winners=[a.name for a in result.acks],
            positions={} if batch is None else batch.positions,
            consumed={} if batch is None else {int(c): n for c, n in batch.consumed.items()},
            segments={int(c): s for c, s in result.segments.items()},
            state=[s for s in result.states if s.inline is None],
            records_in=result.records,
            counters=result.counters,
        )

    def apply_published(self, result: MicroBatchResult) -> None:
        """Continue from a published micro-batch."""
        self.state.apply_published(self.batch, result.states, result.acks)
        self._winners = [a.name for a in result.acks]

    def publish_sinks(self, result: MicroBatchResult) -> None:
        """Pass what tasks staged to the sinks, and remove what losing task attempts staged."""
        fetched = fetch_relayed(self._layout, (file for ack in result.acks for file in ack.relayed))
        for node_id, publisher in self._publishers.items():
            publisher.publish([a.sinks.get(node_id, b"") for a in result.acks])
        for node in self.stage.nodes:
            staging = self._layout.sink_dirs(node.uid).staging
            if node.id in self._publishers and staging.exists():
                shutil.rmtree(staging, ignore_errors=True)
        for file in fetched:
            self._registry.delete(file)

    def discard_try(self, try_number: int) -> None:
        """Remove what the tasks of a lost try staged: nothing of it is ever published."""
        prefix = staged_prefix(self._layout.attempt, self.batch, try_number)
        if self._layout.unshared is None:  # else the tasks of the next try do it
            remove_staged(self._layout, self.stage, range(self.stage.parallelism), f"{prefix}*")
        for publisher in self._publishers.values():
            publisher.discard_staged(prefix)

    def report(
        self, result: MicroBatchResult, run: MicroBatchRun, published: float
    ) -> MicroBatchReport:
        """Return the report of a published micro-batch."""
        return MicroBatchReport(
            stage=self.stage.id,
            stage_name=self.stage.name,
            batch=self.batch,
            tries=run.try_number + 1,
            started=run.started,
            acknowledged=run.acknowledged,
            published=published,
            records_in=result.records,
            records_out=sum(a.records_out for a in result.acks),
            phases=result.phases,
            locations=tuple(a.location for a in result.acks),
            figures={a.subtask: a.figures for a in result.acks if a.figures},
        )

    def has_functions_to_close(self) -> bool:
        """Whether a function with its own `close` has been opened."""
        functions = [n.function for n in self.stage.nodes if isinstance(n.function, Function)]
        return self.batch > 0 and any(type(f).close is not Function.close for f in functions)

    def warn_of_changed_fields(self, result: MicroBatchResult) -> None:
        """Warn once per operator that plain fields do not survive a micro-batch."""
        for ack in result.acks:
            for step, names in ack.changed_fields.items():
                if step not in self._warned:
                    self._warned.add(step)
                    logger.warning(
                        "Step %r changed its fields %s after open(): plain fields do not survive "
                        "a micro-batch; keep what must last in keyed state",
                        step,
                        ", ".join(sorted(names)),
                    )
