"""The loop of one stage: decide, submit, publish, again; and at a barrier, freeze.

The order inside `_publish` is the protocol: the manifest first, everything that can be seen
after it. A loop never holds a lock while a micro-batch runs.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.channel.log import END_OF_INPUT, ChannelLog, Entry, EntryKind, barrier
from penstock.checkpoint.coordinator import Coordinator
from penstock.checkpoint.story import StoryEvent
from penstock.connectors.sink import SinkPublisher
from penstock.crash_points import CrashPoint, reach
from penstock.datastream.functions import Function
from penstock.errors import MicroBatchFailedError
from penstock.graph.plan import Stage
from penstock.ids import ChannelId, CheckpointId
from penstock.job.board import Board
from penstock.job.inputs import Barriers, StageInput, Taken
from penstock.job.manifest import Manifest, add_counts, write_manifest
from penstock.job.recording import Recording
from penstock.job.report import MicroBatchReport
from penstock.job.settings import JobSettings
from penstock.job.sizing import next_size, size_for_consumers
from penstock.job.stage_snapshot import Alignment, CutOrder, StageSnapshots
from penstock.job.stage_state import StageState
from penstock.job.submitter import MicroBatchLostError, Submitter
from penstock.task.failure import unpack
from penstock.task.layout import Layout
from penstock.task.messages import Acknowledgement, Instruction, Notice, SubtaskWork, encode

logger = logging.getLogger("penstock.job")

MANIFESTS_KEPT = 100
"""Per stage; an older one has nothing to tell that the newest does not."""


@dataclass(slots=True)
class StageParts:
    """What a loop works with; made once by the attempt."""

    stage: Stage
    layout: Layout
    settings: JobSettings
    submitter: Submitter
    board: Board
    input: StageInput
    outputs: Mapping[ChannelId, ChannelLog]
    publishers: Mapping[int, SinkPublisher]
    state: StageState
    snapshots: StageSnapshots
    coordinator: Coordinator | None
    """None in BATCH mode, where there are no barriers."""
    restored_from: CheckpointId
    """0 if the job begins with nothing."""
    report: Callable[[MicroBatchReport, Mapping[str, Mapping[str, int]]], None]


class _Stopped(Exception):
    """A micro-batch was cut off because the job ends."""


class StageLoop:
    """Runs one stage of a job from its first micro-batch to its last."""

    def __init__(self, parts: StageParts) -> None:
        self._parts = parts
        self._stage = parts.stage
        self._state = parts.state
        self._size = parts.settings.sizes.initial
        self._made: dict[ChannelId, float] = {}
        """Per output, how many records were lately made out of one."""
        self._batch = parts.state.version
        self._winners: list[str | None] = [None] * parts.stage.parallelism
        self._has_ended = False
        self._alignment = Alignment()
        self._last_checkpoint = parts.restored_from
        self._warned: set[str] = set()

    def run(self) -> None:
        """Work until the end of the job, a failure, or a stop; runs in the stage's thread."""
        try:
            while (taken := self._next()) is not None:
                self._run_micro_batch(taken)
                if taken.end_of_input:
                    self._end()
                if taken.barrier is not None:
                    self._freeze(taken.barrier, taken.recording)
                if self._has_ended and self._parts.coordinator is None:
                    return
        except _Stopped:
            pass
        except BaseException as error:
            if self._parts.board.fail(error):
                logger.debug("stage %s failed", self._stage.name, exc_info=True)
            self._parts.submitter.cancel()
        finally:
            self._state.close()
            self._parts.input.close()

    def _next(self) -> Taken | None:
        board, given = self._parts.board, self._parts.input
        while True:
            seen = board.version
            if board.stopping:
                return None
            if board.is_over:
                self._tell_the_last()
                return None
            # Backpressure: blocking inside a micro-batch would hold the consumer's cores.
            is_full = any(log.is_full() for log in self._parts.outputs.values())
            taken = given.take(self._next_size(), self._barriers(), is_full=is_full)
            self._observe_alignment(taken)
            if taken is not None:
                return taken
            if self._has_news() and not is_full:
                return Taken([SubtaskWork()] * self._stage.parallelism, False)
            board.wait(seen, None if is_full else given.wait_seconds())

    def _barriers(self) -> Barriers:
        coordinator = self._parts.coordinator
        if coordinator is None:
            return Barriers()
        if not self._stage.is_source:
            return Barriers(coordinator.live, self._last_checkpoint)
        return Barriers(
            coordinator.live,
            self._last_checkpoint,
            coordinator.next_barrier(self._stage.id),
            coordinator.quiet,
            coordinator.draining,
        )

    def _observe_alignment(self, taken: Taken | None) -> None:
        coordinator, held = self._parts.coordinator, self._parts.input.held()
        if coordinator is None:
            return
        first = self._alignment.observe(held, taken, time.time())
        if first is not None:
            coordinator.tell(first, StoryEvent.BARRIER_SEEN, self._stage.name)

    def _has_news(self) -> bool:
        """Whether functions wait to be told of a checkpoint and no data comes to bring it."""
        coordinator = self._parts.coordinator
        return (
            coordinator is not None and self._batch > 0 and coordinator.has_notices(self._stage.id)
        )

    def _next_size(self) -> int:
        wanted = [
            (log.wanted, self._made.get(channel, 1.0))
            for channel, log in self._parts.outputs.items()
            if log.wanted is not None
        ]
        return size_for_consumers(self._size, wanted, self._parts.settings.sizes)

    def _run_micro_batch(self, taken: Taken) -> None:
        notices = self._notices(taken)
        if taken.is_empty and not notices and not (taken.end_of_input and self._wants_close()):
            self._consume(taken, 0)
            return
        self._state.take_folded()
        self._batch += 1
        started = time.time()
        acks, try_number = self._run_tries(taken, notices)
        self._publish(taken, acks, try_number, (started, time.time()))

    def _notices(self, taken: Taken) -> list[Notice]:
        coordinator = self._parts.coordinator
        if coordinator is None or (taken.is_empty and (taken.barrier or taken.end_of_input)):
            return []
        return coordinator.take_notices(self._stage.id)

    def _run_tries(
        self, taken: Taken, notices: list[Notice], *, close: bool = False
    ) -> tuple[list[Acknowledgement], int]:
        parts, tries = self._parts, self._parts.settings.max_tries
        lost = ""
        for try_number in range(tries):
            if parts.board.stopping and try_number:
                raise _Stopped
            instruction = self._instruction(taken, try_number, notices, close=close)
            path = parts.layout.instruction(self._stage.id, self._batch, try_number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode([instruction]))
            try:
                (acks,) = parts.submitter.run([instruction], path)
            except MicroBatchLostError as error:
                lost = str(error)
                if parts.board.stopping:
                    raise _Stopped from error
                logger.warning(
                    "stage %r: try %d of micro-batch %d was lost and runs again: %s",
                    self._stage.name,
                    try_number + 1,
                    self._batch,
                    lost,
                )
                continue
            finally:
                path.unlink(missing_ok=True)
            for ack in acks:
                if ack.failure is not None:
                    raise unpack(ack.failure)
            return acks, try_number
        raise MicroBatchFailedError(self._stage.name, self._batch, tries, lost)

    def _instruction(
        self, taken: Taken, try_number: int, notices: list[Notice], *, close: bool
    ) -> Instruction:
        work = [
            SubtaskWork(
                ranges=w.ranges,
                segments=w.segments,
                state=self._state.ref(i),
                previous=self._winners[i],
                operator_state=self._state.operator_state(i),
                restored=self._state.is_restored,
            )
            for i, w in enumerate(taken.work)
        ]
        return Instruction(
            job=str(self._parts.layout.shared),
            attempt=self._parts.layout.attempt,
            stage=self._stage.id,
            batch=self._batch,
            try_number=try_number,
            work=work,
            end_of_input=taken.end_of_input,
            key_slice=taken.key_slice,
            checkpoint=taken.barrier,
            passed=self._last_checkpoint,
            snapshot=self._state.wants_snapshot(at_barrier=taken.barrier is not None),
            notices=notices,
            keep_open=self._listens(),
            close=close,
        )

    def _listens(self) -> bool:
        coordinator = self._parts.coordinator
        return coordinator is not None and coordinator.listens(self._stage.id)

    def _publish(
        self,
        taken: Taken,
        acks: list[Acknowledgement],
        try_number: int,
        times: tuple[float, float],
    ) -> None:
        parts, (started, acknowledged) = self._parts, times
        segments = {
            int(channel): [o.segment for a in acks for o in a.outputs if o.channel == channel]
            for channel in parts.outputs
        }
        states = self._state.after(self._batch, acks)
        counters: dict[str, dict[str, int]] = {}
        for ack in acks:
            add_counts(counters, ack.counters)
        records = sum(a.records_in for a in acks)
        manifest = Manifest(
            stage=self._stage.id,
            batch=self._batch,
            try_number=try_number,
            winners=[a.name for a in acks],
            positions=taken.positions,
            consumed={int(c): n for c, n in taken.consumed.items()},
            segments=segments,
            state=[s for s in states if s.inline is None],
            records_in=records,
            counters=counters,
        )
        reach(CrashPoint.STAGE_BEFORE_MANIFEST)
        write_manifest(parts.layout.manifest(self._stage.id, self._batch), manifest)
        reach(CrashPoint.STAGE_AFTER_MANIFEST)
        too_old = parts.layout.manifest(self._stage.id, self._batch - MANIFESTS_KEPT)
        too_old.unlink(missing_ok=True)
        self._state.accept(self._batch, states, acks)
        self._winners = [a.name for a in acks]
        for channel, log in parts.outputs.items():
            if segments[channel]:
                entry = Entry(EntryKind.DATA, tuple(segments[channel]))
                self._made[channel] = entry.rows / max(records, 1)
                log.append(entry)
        for node_id, publisher in parts.publishers.items():
            publisher.publish([a.sinks.get(node_id, b"") for a in acks])
        self._empty_staging()
        self._consume(taken, records)
        if parts.coordinator is not None and self._stage.is_source:
            parts.coordinator.count(records)
        published = time.time()
        phases = max((a.phases for a in acks), key=lambda p: sum(p.values()), default={})
        self._size = next_size(
            self._size,
            records,
            published - started,
            sum(phases.values()),
            parts.settings.sizes,
        )
        parts.input.wants(self._size)
        parts.report(
            MicroBatchReport(
                stage=self._stage.id,
                stage_name=self._stage.name,
                batch=self._batch,
                tries=try_number + 1,
                started=started,
                acknowledged=acknowledged,
                published=published,
                records_in=records,
                records_out=sum(a.records_out for a in acks),
                phases=phases,
                homes=tuple(a.home for a in acks),
            ),
            counters,
        )
        self._warn_of_changed_fields(acks)
        # A checkpoint folds what it freezes, if its backend wants that.
        if not taken.end_of_input and taken.barrier is None:
            self._state.start_folding()

    def _consume(self, taken: Taken, records: int) -> None:
        # A barrier is consumed here too, before the freeze: no other thread takes from these
        # logs, so the inputs stay held until this loop comes back for more.
        for channel, entry in self._parts.input.published(taken, records):
            for segment in entry.segments:
                (self._parts.layout.channel(channel) / segment.name).unlink(missing_ok=True)
        self._parts.board.change()

    def _freeze(self, checkpoint: CheckpointId, recording: Recording | None) -> None:
        """Take the cut: freeze, forward the barrier, hand over what is to become durable."""
        parts, coordinator = self._parts, self._parts.coordinator
        assert coordinator is not None
        cut = parts.snapshots.cut(
            CutOrder(
                checkpoint,
                coordinator.triggered(checkpoint),
                self._alignment.take(checkpoint),
                ended=self._has_ended,
                rolls_all=coordinator.rolls_all(checkpoint),
                savepoint=coordinator.savepoint_path(checkpoint),
                recording=recording,
            )
        )
        if recording is not None:
            coordinator.tell(checkpoint, StoryEvent.OVERTAKEN, self._stage.name)
        reach(CrashPoint.STAGE_SNAPSHOT_FROZEN)
        coordinator.tell(checkpoint, StoryEvent.SNAPSHOT_SYNC, self._stage.name)
        for log in parts.outputs.values():
            log.append(barrier(checkpoint))
        self._last_checkpoint = checkpoint
        coordinator.hand_over(cut)
        event = (
            StoryEvent.BARRIER_INJECTED if self._stage.is_source else StoryEvent.BARRIER_FORWARDED
        )
        coordinator.tell(checkpoint, event, self._stage.name)
        reach(CrashPoint.STAGE_BARRIER_FORWARDED)
        parts.board.change()

    def _empty_staging(self) -> None:
        """Remove what the sinks' tasks staged up to now, lost tries too."""
        for node_id in self._parts.publishers:
            uid = next(n.uid for n in self._stage.nodes if n.id == node_id)
            staging = self._parts.layout.staging(uid)
            if staging.exists():
                shutil.rmtree(staging, ignore_errors=True)

    def _end(self) -> None:
        self._has_ended = True
        for log in self._parts.outputs.values():
            log.append(END_OF_INPUT)
        if self._parts.coordinator is not None:
            self._parts.coordinator.ended(self._stage.id)
        self._parts.board.change()

    def _tell_the_last(self) -> None:
        """Tell functions of the last checkpoint, and close them."""
        coordinator = self._parts.coordinator
        if coordinator is None or self._batch == 0 or not self._listens():
            return
        self._batch += 1
        nothing = Taken([SubtaskWork()] * self._stage.parallelism, False)
        try:
            self._run_tries(nothing, coordinator.take_notices(self._stage.id), close=True)
        except _Stopped:
            raise
        except Exception as error:
            # Everything is committed: another attempt would have nothing to do.
            logger.warning(
                "stage %r: telling its functions of the last checkpoint failed: %s",
                self._stage.name,
                error,
            )

    def _wants_close(self) -> bool:
        functions = [n.function for n in self._stage.nodes if isinstance(n.function, Function)]
        return self._batch > 0 and any(type(f).close is not Function.close for f in functions)

    def _warn_of_changed_fields(self, acks: list[Acknowledgement]) -> None:
        for ack in acks:
            for step, names in ack.changed_fields.items():
                if step not in self._warned:
                    self._warned.add(step)
                    logger.warning(
                        "step %r changed its fields %s after open(): plain fields do not survive "
                        "a micro-batch; keep what must last in keyed state",
                        step,
                        ", ".join(sorted(names)),
                    )
