"""The loop of one group of stages: decide, submit, publish, again; and at a barrier, freeze.

Mostly a group is one stage; where records travel by the engine's shuffle it is several, which are
at the same micro-batch. The order inside `_publish` is the protocol: the manifest first, everything
that can be seen after it. A loop never holds a lock while a micro-batch runs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.channel.log import END_OF_INPUT, ChannelLog, Entry, EntryKind, barrier
from penstock.checkpoint.coordinator import Coordinator
from penstock.checkpoint.story import StoryEvent
from penstock.crash_points import CrashPoint, reach
from penstock.errors import MicroBatchFailedError
from penstock.ids import ChannelId, CheckpointId, StageId
from penstock.job.board import Board
from penstock.job.event_time import GroupTime
from penstock.job.inputs import Barriers, StageInput, Taken
from penstock.job.manifest import Manifest, write_manifest
from penstock.job.member import Done, Member, Order
from penstock.job.pace import Pace
from penstock.job.recording import Recording
from penstock.job.report import MicroBatchReport
from penstock.job.settings import JobSettings
from penstock.job.sizing import is_light, next_size, size_for_consumers
from penstock.job.stage_snapshot import Aligned, Alignment, CutOrder
from penstock.job.submitter import MicroBatchLostError, Submitter
from penstock.task.failure import unpack
from penstock.task.layout import Layout
from penstock.task.messages import Acknowledgement, Instruction, SubtaskWork, TimeOrder, encode

logger = logging.getLogger("penstock.job")

MANIFESTS_KEPT = 100
"""Per group; an older one has nothing to tell that the newest does not."""


@dataclass(frozen=True, slots=True)
class GroupParts:
    """What a loop works with; made once by the attempt."""

    members: Sequence[Member]
    """In topological order: the first one reads `input`."""
    layout: Layout
    settings: JobSettings
    clock: Callable[[], float]
    """Processing time, in seconds; read once for each try."""
    submitter: Submitter
    board: Board
    input: StageInput
    outputs: Mapping[ChannelId, ChannelLog]
    """The channels to other groups."""
    pace: Pace
    coordinator: Coordinator | None
    """None in BATCH mode, where there are no barriers."""
    restored_from: CheckpointId
    """0 if the job begins with nothing."""
    report: Callable[[MicroBatchReport, Mapping[str, Mapping[str, int]]], None]


class _Stopped(Exception):
    """A micro-batch was cut off because the job ends."""


class GroupLoop:
    """Runs one group of a job from its first micro-batch to its last."""

    def __init__(self, parts: GroupParts) -> None:
        self._parts = parts
        self._members = parts.members
        self._head = parts.members[0]
        self._stage = self._head.stage
        self._size = parts.settings.sizes.initial
        self._made: dict[ChannelId, float] = {}
        """Per output, how many records were lately made out of one."""
        self._is_light = False
        """Whether the last micro-batch cost hardly more than an empty one."""
        self._has_ended = False
        self._time = GroupTime(
            [m.time for m in parts.members],
            [c for m in parts.members for c in m.stage.outputs if c.id in parts.outputs],
            parts.settings.watermark_seconds,
        )
        # Known to the others before any of them starts.
        self._is_ahead()
        self._alignment = Alignment()
        self._last_checkpoint = parts.restored_from

    def run(self) -> None:
        """Work until the end of the job, a failure, or a stop; runs in the group's thread."""
        try:
            self._look_at_splits()
            # What a restored stage knows of event time, those behind it have to be told again.
            self._announce()
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
            for member in self._members:
                member.state.close()
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
            is_blocked = self._is_blocked()
            is_full = is_blocked or self._waits_its_turn()
            taken = given.take(self._next_size(), self._barriers, is_full=is_full)
            self._observe_alignment(taken)
            self._look_at_time(taken, is_blocked=is_blocked, is_full=is_full)
            if taken is not None:
                return taken
            if (self._has_news() or self._is_called()) and not is_full:
                return self._nothing()
            board.wait(seen, None if is_full else self._wait_seconds())

    def _is_called(self) -> bool:
        """Whether time itself has something to do: timers, or inputs that became idle."""
        return not self._has_ended and self._time.calls(self._parts.clock())

    def _wait_seconds(self) -> float | None:
        waits = [self._parts.input.wait_seconds()]
        if not self._has_ended:
            waits.append(self._time.wait_seconds(self._parts.clock()))
        return min((w for w in waits if w is not None), default=None)

    def _look_at_time(self, taken: Taken | None, *, is_blocked: bool, is_full: bool) -> None:
        if self._has_ended:
            return
        given, coordinator = self._parts.input, self._parts.coordinator
        is_quiet = coordinator is not None and coordinator.quiet
        self._time.look(
            self._parts.clock(),
            set() if taken is None else taken.units(),
            held=is_blocked or is_quiet or given.held() is not None,
            # A barrier goes before everything else that might be there.
            asked=not is_full and (taken is None or taken.barrier is None),
        )

    def _is_blocked(self) -> bool:
        """Whether no micro-batch with data may start, since others are behind."""
        if self._stage.is_source and self._is_ahead():
            return True
        # Backpressure: blocking inside a micro-batch would hold the consumer's cores.
        return any(log.is_full() for log in self._parts.outputs.values())

    def _waits_its_turn(self) -> bool:
        """Whether a micro-batch with data comes sooner to its end if it starts a little later."""
        outputs = self._parts.outputs.values()
        # Where all cost hardly more than empty ones, more of them at once only get in each
        # other's way: a record comes sooner if what was sent before it goes first, and takes
        # along what has come in the meantime.
        return self._is_light and bool(outputs) and all(log.is_passing_on for log in outputs)

    def _is_ahead(self) -> bool:
        """Whether the source has to wait for others that it is aligned with."""
        pace, aligned = self._parts.pace, self._head.time.aligned()
        for who, (alignment, clock) in aligned.items():
            if pace.tell(alignment, who, clock):
                self._parts.board.change()
        return any(pace.is_ahead(alignment, who) for who, (alignment, _) in aligned.items())

    def _nothing(self) -> Taken:
        return Taken([SubtaskWork()] * self._stage.parallelism, False)

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
        return coordinator is not None and any(
            m.batch > 0 and coordinator.has_notices(m.stage.id) for m in self._members
        )

    def _next_size(self) -> int:
        wanted = [
            (log.wanted, self._made.get(channel, 1.0))
            for channel, log in self._parts.outputs.items()
            if log.wanted is not None
        ]
        return size_for_consumers(self._size, wanted, self._parts.settings.sizes)

    def _run_micro_batch(self, taken: Taken) -> None:
        now = self._parts.clock()
        goals = self._time.plan(taken.clocks, end=taken.end_of_input)
        order = self._order(taken, self._time.orders(goals))
        closes = taken.end_of_input and any(m.wants_close() for m in self._members)
        is_due = self._time.is_due(goals, now)
        if taken.is_empty and not any(order.notices.values()) and not closes and not is_due:
            self._time.reach(goals)
            self._consume(taken, 0)
            self._announce()
            return
        for member in self._members:
            member.state.take_folded()
            member.batch += 1
        started = time.time()
        acks, try_number = self._run_tries(order)
        self._time.reach(goals)
        self._publish(taken, acks, try_number, (started, time.time()))

    def _order(self, taken: Taken, times: Mapping[StageId, TimeOrder]) -> Order:
        coordinator = self._parts.coordinator
        notices = {}
        if coordinator is not None and not (
            taken.is_empty and (taken.barrier or taken.end_of_input)
        ):
            notices = {m.stage.id: coordinator.take_notices(m.stage.id) for m in self._members}
        keep_open = self._listens()
        return Order(taken, notices, self._last_checkpoint, keep_open, times=times)

    def _run_tries(self, order: Order) -> tuple[list[list[Acknowledgement]], int]:
        parts, tries = self._parts, self._parts.settings.max_tries
        lost = ""
        for try_number in range(tries):
            if parts.board.stopping and try_number:
                raise _Stopped
            now = int(parts.clock() * 1000)
            try:
                acks = self._submit(
                    [
                        m.instruction(order, try_number, now, is_head=m is self._head)
                        for m in self._members
                    ],
                    try_number,
                )
            except MicroBatchLostError as error:
                lost = str(error)
                if parts.board.stopping:
                    raise _Stopped from error
                logger.warning(
                    "stage %r: try %d of micro-batch %d was lost and runs again: %s",
                    self._stage.name,
                    try_number + 1,
                    self._head.batch,
                    lost,
                )
                continue
            for ack in (a for of_member in acks for a in of_member):
                if ack.failure is not None:
                    raise unpack(ack.failure)
            return acks, try_number
        raise MicroBatchFailedError(self._stage.name, self._head.batch, tries, lost)

    def _submit(
        self, instructions: list[Instruction], try_number: int
    ) -> list[list[Acknowledgement]]:
        path = self._parts.layout.instruction(self._stage.id, self._head.batch, try_number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(instructions))
        try:
            return self._parts.submitter.run(instructions, path)
        finally:
            path.unlink(missing_ok=True)

    def _listens(self) -> bool:
        coordinator = self._parts.coordinator
        return coordinator is not None and any(
            coordinator.listens(m.stage.id) for m in self._members
        )

    def _publish(
        self,
        taken: Taken,
        acks: list[list[Acknowledgement]],
        try_number: int,
        times: tuple[float, float],
    ) -> None:
        parts = self._parts
        done = [m.done(mine, parts.outputs) for m, mine in zip(self._members, acks, strict=True)]
        together = list(zip(self._members, done, strict=True))
        manifest = Manifest(
            [m.manifest(d, try_number, taken if m is self._head else None) for m, d in together]
        )
        reach(CrashPoint.STAGE_BEFORE_MANIFEST)
        write_manifest(parts.layout.manifest(self._stage.id, self._head.batch), manifest)
        reach(CrashPoint.STAGE_AFTER_MANIFEST)
        too_old = parts.layout.manifest(self._stage.id, self._head.batch - MANIFESTS_KEPT)
        too_old.unlink(missing_ok=True)
        for member, its in together:
            member.accept(its)
            member.time.accept(its.acks, parts.clock())
        self._look_at_splits()
        records = done[0].records
        for channel, segments in ((c, s) for d in done for c, s in d.segments.items() if s):
            entry = Entry(EntryKind.DATA, tuple(segments))
            self._made[channel] = entry.rows / max(records, 1)
            parts.outputs[channel].append(entry)
        self._announce()
        for member, its in together:
            member.publish_sinks(its)
        self._consume(taken, records)
        if parts.coordinator is not None and self._stage.is_source:
            parts.coordinator.count(records)
        published = time.time()
        self._resize(done, published - times[0])
        for member, its in together:
            report = member.report(its, try_number + 1, (*times, published))
            parts.report(report, its.counters)
            member.warn_of_changed_fields(its)
            # A checkpoint folds what it freezes, if its backend wants that.
            if not taken.end_of_input and taken.barrier is None:
                member.state.start_folding()

    def _look_at_splits(self) -> None:
        given = self._parts.input
        if self._head.time.makes_time and self._stage.is_source:
            now = self._parts.clock()
            self._head.time.look_at(given.parallel_splits(), given.is_finished, now)

    def _announce(self) -> None:
        """Tell those behind how far event time has come, where that is new to them."""
        for channel, clock in self._time.news().items():
            self._parts.outputs[channel].append(Entry(EntryKind.WATERMARK, clock=clock))

    def _resize(self, done: Sequence[Done], seconds: float) -> None:
        working = sum(sum(d.phases.values()) for d in done)
        sizes = self._parts.settings.sizes
        records = done[0].records
        self._is_light = is_light(self._size, records, seconds, working)
        self._size = next_size(self._size, records, seconds, working, sizes)
        self._parts.input.wants(self._size, light=self._is_light)

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
        triggered, aligned = coordinator.triggered(checkpoint), self._alignment.take(checkpoint)
        cuts = [
            member.snapshots.cut(
                CutOrder(
                    checkpoint,
                    triggered,
                    aligned if member is self._head else Aligned(aligned.ended, aligned.ended),
                    ended=self._has_ended,
                    rolls_all=coordinator.rolls_all(checkpoint),
                    savepoint=coordinator.savepoint_path(checkpoint),
                    recording=recording if member is self._head else None,
                    time=member.time.saved(),
                )
            )
            for member in self._members
        ]
        if recording is not None:
            coordinator.tell(checkpoint, StoryEvent.OVERTAKEN, self._stage.name)
        reach(CrashPoint.STAGE_SNAPSHOT_FROZEN)
        for member in self._members:
            coordinator.tell(checkpoint, StoryEvent.SNAPSHOT_SYNC, member.stage.name)
        for log in parts.outputs.values():
            log.append(barrier(checkpoint))
        self._last_checkpoint = checkpoint
        for cut in cuts:
            coordinator.hand_over(cut)
        event = (
            StoryEvent.BARRIER_INJECTED if self._stage.is_source else StoryEvent.BARRIER_FORWARDED
        )
        coordinator.tell(checkpoint, event, self._stage.name)
        reach(CrashPoint.STAGE_BARRIER_FORWARDED)
        parts.board.change()

    def _end(self) -> None:
        self._has_ended = True
        for log in self._parts.outputs.values():
            log.append(END_OF_INPUT)
        if self._parts.coordinator is not None:
            for member in self._members:
                self._parts.coordinator.ended(member.stage.id)
        self._parts.board.change()

    def _tell_the_last(self) -> None:
        """Tell functions of the last checkpoint, and close them."""
        coordinator = self._parts.coordinator
        if coordinator is None or self._head.batch == 0 or not self._listens():
            return
        for member in self._members:
            member.batch += 1
        notices = {m.stage.id: coordinator.take_notices(m.stage.id) for m in self._members}
        order = Order(self._nothing(), notices, self._last_checkpoint, keep_open=True, close=True)
        try:
            self._run_tries(order)
        except _Stopped:
            raise
        except Exception as error:
            # Everything is committed: another attempt would have nothing to do.
            logger.warning(
                "stage %r: telling its functions of the last checkpoint failed: %s",
                self._stage.name,
                error,
            )
