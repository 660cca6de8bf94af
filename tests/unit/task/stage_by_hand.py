"""A program whose micro-batches a test runs by hand, doing what the driver would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.connectors.contracts.source import SplitRange
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.connectors.indexed_sources import NumberSequenceSource
from penstock.graph.job_graph import GraphSettings, build_job_graph
from penstock.graph.plan import Stage, plan_job
from penstock.graph.transformation import (
    AUTO,
    Exchange,
    OperatorKind,
    Partitioning,
    Transformation,
    Upstream,
)
from penstock.ids import AttemptId, JobKey
from penstock.state.backends.refs import StateRef
from penstock.state.backends.registry import create_state_backend
from penstock.state.local_dir import HostDir
from penstock.task import subtask as subtask_module
from penstock.task.failure import unpack
from penstock.task.layout import AttemptLayout
from penstock.task.messages import (
    Acknowledgement,
    Instruction,
    SegmentRead,
    SubtaskWork,
    decode_acknowledgement,
    decode_instructions,
    encode,
)
from penstock.task.stage_task import StageTask, dump_task
from penstock.task.subtask import TaskAttempt, run_subtask

Step = tuple[OperatorKind, str, Any]
"""Kind, uid, function; the name is the uid."""

CALLS: list[str] = []
"""What functions record of themselves; they run in this process."""

EMITTED: list[Any] = []
"""The records at the end of the chain in the last task."""


def emit(record: Any) -> Any:
    EMITTED.append(record)
    return record


@dataclass
class Versions:
    """What is published of one stage."""

    batch: int = 0
    winners: list[str | None] = field(default_factory=list)
    operator_state: list[dict[str, bytes]] = field(default_factory=list)
    state: list[StateRef | None] = field(default_factory=list)


class ByHand:
    """Numbers from a source through some steps, with or without a key before them."""

    def __init__(
        self,
        directory: Path,
        *steps: Step,
        parallelism: int = 1,
        backend: str = "memory",
        batch_mode: bool = False,
    ) -> None:
        source = NumberSequenceSource(0, 1_000_000)
        last = Transformation(OperatorKind.SOURCE, "numbers", source)
        for kind, uid, function in (*steps, (OperatorKind.MAP, "emit", emit)):
            by_key = Partitioning(Exchange.HASH, _tens)
            upstream = Upstream(last, by_key if kind.is_keyed else AUTO)
            last = Transformation(kind, uid, function, (upstream,), uid=uid)
        sink = Transformation(OperatorKind.SINK, "end", DiscardingSink(), (Upstream(last),))
        plan = plan_job(build_job_graph("job", [sink], GraphSettings(parallelism)))
        self._layout = AttemptLayout(
            shared=directory / "shared",
            local=HostDir(directory, "local"),
            attempt=AttemptId("a1"),
            durable=directory / "durable",
            job=JobKey("job"),
        )
        self._tasks = [
            dump_task(StageTask(s, self._layout, backend, batch_mode, {})) for s in plan.stages
        ]
        self._stages = plan.stages
        self._backend = create_state_backend(backend)
        self._parallelism = parallelism
        self._task_attempts = 0
        self.published = Versions(
            0, [None] * parallelism, [{} for _ in range(parallelism)], [None] * parallelism
        )
        self.restored = False

    def run(self, *numbers: range, publish: bool = True, **options: Any) -> list[Acknowledgement]:
        """Run a micro-batch of the last stage: a range of numbers for each subtask."""
        CALLS.clear()
        EMITTED.clear()
        ranges = numbers or (range(0),) * self._parallelism
        work = [SubtaskWork(ranges=[SplitRange("0", r.start, r.stop)] if r else []) for r in ranges]
        if len(self._stages) > 1:
            work = self._through_channel(work)
        before = self.published
        work = [
            SubtaskWork(
                ranges=w.ranges,
                segments=w.segments,
                state=before.state[i],
                previous=before.winners[i],
                operator_state=before.operator_state[i],
                restored=self.restored,
            )
            for i, w in enumerate(work)
        ]
        acks = self._acks(len(self._stages) - 1, before.batch + 1, work, options)
        if publish:
            self._publish(acks)
        return acks

    def lose_workers(self) -> None:
        """Let the next tasks run where no functions are left open."""
        subtask_module._open_functions.clear()

    def _publish(self, acks: list[Acknowledgement]) -> None:
        before = self.published
        batch = before.batch + 1
        self.published = Versions(
            batch,
            [a.name for a in acks],
            [a.operator_state for a in acks],
            [
                self._backend.publish(ref or StateRef(0), batch, a.state)
                for ref, a in zip(before.state, acks, strict=True)
            ],
        )

    def _through_channel(self, work: list[SubtaskWork]) -> list[SubtaskWork]:
        stage: Stage = self._stages[0]
        acks = self._acks(0, self.published.batch + 1, work, {})
        segments = [o.segment for a in acks for o in a.outputs]
        channel = stage.outputs[0].id
        return [
            SubtaskWork(segments={channel: [SegmentRead(s.name, s.slices[i]) for s in segments]})
            for i in range(self._parallelism)
        ]

    def _acks(
        self, stage: int, batch: int, work: list[SubtaskWork], options: dict[str, Any]
    ) -> list[Acknowledgement]:
        instruction = Instruction(
            job=str(self._layout.shared),
            attempt=self._layout.attempt,
            stage=stage,
            batch=batch,
            try_number=0,
            work=work,
            **options,
        )
        (read,) = decode_instructions(encode([instruction]))
        acks = []
        for index in range(self._parallelism):
            self._task_attempts += 1
            attempt = TaskAttempt(index, self._task_attempts, 0)
            ack = run_subtask(self._tasks[stage], read, attempt)
            acks.append(decode_acknowledgement(encode(ack)))
        for ack in acks:
            if ack.failure is not None:
                raise unpack(ack.failure)
        return acks


def _tens(number: int) -> int:
    return number // 10
