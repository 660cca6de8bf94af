"""What a stage may read next: a source's ranges, or the entries of its channels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.channel.log import ChannelLog, Clock, Entry, last_clock
from penstock.checkpoint.cut import NONE_PASSED, InputFacts, Passing, decide_cut
from penstock.checkpoint.metadata import SourceState
from penstock.connectors.source import SourceEnumerator
from penstock.ids import ChannelId, CheckpointId
from penstock.job.recording import Recording
from penstock.task.messages import SegmentRead, SubtaskWork


@dataclass(frozen=True, slots=True)
class Taken:
    """The input of one micro-batch, fixed before its first try."""

    work: list[SubtaskWork]
    end_of_input: bool
    consumed: dict[ChannelId, int] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    key_slice: tuple[int, int] | None = None
    barrier: CheckpointId | None = None
    """The checkpoint whose cut lies behind this micro-batch."""
    recording: Recording | None = None
    """What that checkpoint's barrier has overtaken, if it has."""
    clocks: dict[ChannelId, Clock] = field(default_factory=dict)
    """What the input says of event time, behind all that is taken."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read in it."""
        return not any(w.ranges or w.segments for w in self.work)

    def units(self) -> set[str]:
        """Return what there is something to read of: splits, or subtasks behind an exchange."""
        splits = {r.split for w in self.work for r in w.ranges}
        return splits | {f"#{i}" for i, w in enumerate(self.work) if w.segments}


@dataclass(frozen=True, slots=True)
class Barriers:
    """What a stage knows of the checkpoints under way, read once per decision."""

    live: Mapping[CheckpointId, Passing] = field(default_factory=dict)
    """Neither completed nor aborted, and how to pass their barriers."""
    passed: CheckpointId = NONE_PASSED
    """The last one this stage took part in."""
    triggered: CheckpointId | None = None
    """For a source: the next one whose barrier it has to send."""
    quiet: bool = False
    """For a source: whether to plan nothing, because the job is being stopped."""
    draining: bool = False
    """For a source: whether to come to its end here."""


@dataclass(frozen=True, slots=True)
class Held:
    """An alignment under way: which inputs wait at which barrier, and the bytes behind it."""

    checkpoint: CheckpointId
    bytes: Mapping[ChannelId, int]


Look = Callable[[], Barriers]
"""Reads what is known of barriers. An input looks at its logs first: a barrier that stands there
was triggered before, so what is known of it then is all there is to know."""


class StageInput(ABC):
    """One stage's input as its loop sees it; called by the loop's thread."""

    @abstractmethod
    def take(self, max_records: int, look: Look, *, is_full: bool) -> Taken | None:
        """Fix the input of the next micro-batch; None if there is none now.

        With `is_full` only what brings no data on its way: a barrier, the end of input.
        """

    @abstractmethod
    def published(self, taken: Taken, records: int) -> list[tuple[ChannelId, Entry]]:
        """Learn that its effects count; return the log entries nobody needs any more."""

    @abstractmethod
    def wait_seconds(self) -> float | None:
        """Return how long to sleep without a signal; None until there is one."""

    def held(self) -> Held | None:
        """Return the alignment that the last `take` saw, if any."""
        return None

    def wants(self, records: int, *, light: bool) -> None:  # noqa: B027
        """Tell whoever produces the input how many records are good to take at once.

        `light` says whether what was taken last cost hardly more than nothing would have.
        """

    def parallel_splits(self) -> Collection[str]:
        """Return the splits of the source that event time waits for."""
        return ()

    def is_finished(self, split: str) -> bool:
        """Whether a split of the source was planned to its end."""
        return False

    def close(self) -> None:  # noqa: B027
        """Release what the input holds."""


class SourceInput(StageInput):
    """A stage that reads an external source."""

    def __init__(
        self,
        enumerator: SourceEnumerator,
        parallelism: int,
        poll_seconds: float,
        before_take: Callable[[Mapping[str, int]], None] | None = None,
    ) -> None:
        self._enumerator = enumerator
        self._parallelism = parallelism
        self._poll_seconds = poll_seconds
        self._before_take = before_take
        self._has_ended = False
        self._is_quiet = False
        self._unneeded: Mapping[str, int] | None = None
        self._settled: Mapping[str, int] | None = None

    def take(self, max_records: int, look: Look, *, is_full: bool) -> Taken | None:
        """Send a barrier that is due, else ask the source for ranges."""
        barriers = look()
        self._is_quiet = barriers.quiet
        self._tell()
        if barriers.draining and not self._has_ended:
            self._has_ended = True
            return Taken(self._no_work(), True)
        if barriers.triggered is not None:
            return Taken(self._no_work(), False, barrier=barriers.triggered)
        if self._has_ended or is_full or barriers.quiet:
            return None
        plan = self._enumerator.plan(max_records)
        end = self._enumerator.finished()
        if not plan and not end:
            return None
        self._has_ended = end
        positions = self._enumerator.positions()
        # Where a range lies may be spelled otherwise than what stays of it in a checkpoint.
        planned = {r.split: positions.get(r.split, r.end) for ranges in plan for r in ranges}
        if plan and self._before_take is not None:
            self._before_take(positions)
        work = [SubtaskWork(ranges=list(ranges)) for ranges in plan]
        work += [SubtaskWork()] * (self._parallelism - len(work))
        return Taken(work, end, positions=planned)

    def snapshot(self) -> SourceState:
        """Return where the source goes on, between micro-batches: behind what was published.

        It is finished if the source itself has nothing more, ever; a drained one may have.
        """
        source = self._enumerator
        positions, finished = source.positions(), source.finished()
        return SourceState(positions, finished, source.memory(), source.kept_files())

    def completed(self, positions: Mapping[str, int]) -> None:
        """Learn up to where a checkpoint holds everything; told to the source by its loop."""
        self._settled = positions

    def release(self, positions: Mapping[str, int]) -> None:
        """Learn below what nothing will be asked for again; told to the source by its loop."""
        self._unneeded = positions

    def _tell(self) -> None:
        settled, self._settled = self._settled, None
        if settled is not None:
            self._enumerator.completed(settled)
        unneeded, self._unneeded = self._unneeded, None
        if unneeded:
            self._enumerator.release(unneeded)

    def published(self, taken: Taken, records: int) -> list[tuple[ChannelId, Entry]]:
        """Tell the source how many records its ranges held."""
        ranges = [r for w in taken.work for r in w.ranges]
        if ranges:
            self._enumerator.observe(records, ranges)
        return []

    def parallel_splits(self) -> Collection[str]:
        """Ask the source."""
        return self._enumerator.parallel_splits()

    def is_finished(self, split: str) -> bool:
        """Ask the source."""
        return self._enumerator.is_finished(split)

    def wait_seconds(self) -> float | None:
        """Return the source's own wish, but never spin."""
        if self._has_ended or self._is_quiet:
            return None
        wish = self._enumerator.next_poll()
        return None if wish is None else max(wish, self._poll_seconds / 10)

    def close(self) -> None:
        """Tell the source what it does not know yet, and close it."""
        try:
            self._tell()
        finally:
            self._enumerator.close()

    def _no_work(self) -> list[SubtaskWork]:
        return [SubtaskWork()] * self._parallelism


class ChannelInput(StageInput):
    """A stage that reads channels, all of them at the pace they have."""

    def __init__(
        self,
        logs: Mapping[ChannelId, ChannelLog],
        parallelism: int,
        forward: Collection[ChannelId] = (),
    ) -> None:
        self._logs = logs
        self._parallelism = parallelism
        # A source's split is cut between subtasks: two entries of a forward channel in one
        # micro-batch would put the second one's first piece before the first one's second.
        self._most = {channel: 1 for channel in forward if parallelism > 1}
        self._held: Held | None = None
        self._recordings: list[Recording] = []
        self._kept: list[tuple[ChannelId, Entry]] = []
        """Consumed, and still needed by a recording."""

    def take(self, max_records: int, look: Look, *, is_full: bool) -> Taken | None:
        """Take what has been appended, as far as it fits, up to the barriers."""
        facts = {
            channel: InputFacts(log.pending(), log.has_ended, self._most.get(channel), log.passed)
            for channel, log in self._logs.items()
        }
        barriers = look()
        self._record(facts, barriers.live)
        cut = decide_cut(facts, barriers.live, max_records, barriers.passed)
        if cut.overtakes:
            assert cut.barrier is not None
            return self._overtaken(cut.barrier, facts)
        self._held = None
        if cut.held:
            checkpoint = min(cut.held.values())
            self._held = Held(checkpoint, {c: self._logs[c].size for c in cut.held})
        taken = {c: [facts[c].entries[i] for i in range(n)] for c, n in cut.take.items()}
        if not taken or (is_full and any(e.segments for part in taken.values() for e in part)):
            return None
        return Taken(
            work_of(taken, self._parallelism),
            cut.end_of_input,
            consumed=dict(cut.take),
            barrier=cut.barrier,
            clocks={c: clock for c, e in taken.items() if (clock := last_clock(e)) is not None},
        )

    def _overtaken(self, checkpoint: CheckpointId, facts: Mapping[ChannelId, InputFacts]) -> Taken:
        self._held = None
        recording = Recording(checkpoint, {c: log.position for c, log in self._logs.items()})
        self._recordings.append(recording)
        self._record(facts, {checkpoint: Passing.UNALIGNED})
        return Taken(
            [SubtaskWork()] * self._parallelism, False, barrier=checkpoint, recording=recording
        )

    def _record(
        self, facts: Mapping[ChannelId, InputFacts], live: Mapping[CheckpointId, Passing]
    ) -> None:
        for recording in self._recordings:
            if recording.checkpoint not in live:
                recording.abandon()
            for channel, log in self._logs.items():
                recording.observe(channel, log.position, facts[channel].entries)
            recording.settle()

    def held(self) -> Held | None:
        """Return the inputs that wait at a barrier."""
        return self._held

    def published(self, taken: Taken, records: int) -> list[tuple[ChannelId, Entry]]:
        """Drop the entries that were taken."""
        done = self._kept + [
            (channel, entry)
            for channel, count in taken.consumed.items()
            for entry in self._logs[channel].consume(count)
        ]
        self._recordings = [r for r in self._recordings if not r.is_over]
        gone: list[tuple[ChannelId, Entry]] = []
        self._kept = []
        for channel, entry in done:
            needed = any(r.needs(channel, entry) for r in self._recordings)
            (self._kept if needed else gone).append((channel, entry))
        return gone

    def close(self) -> None:
        """Give up what is being recorded: nobody will observe any more."""
        for recording in self._recordings:
            recording.abandon()

    def wants(self, records: int, *, light: bool) -> None:
        """Leave word at every channel."""
        for log in self._logs.values():
            log.wanted = records
            log.is_light = light

    def wait_seconds(self) -> float | None:
        """Wait for a signal."""
        return None


class GroupedInput(ChannelInput):
    """BATCH mode: everything there will ever be, in parts by key group."""

    def __init__(
        self, logs: Mapping[ChannelId, ChannelLog], parallelism: int, max_records: int
    ) -> None:
        super().__init__(logs, parallelism)
        self._max_records = max_records
        self._part = 0

    def take(self, max_records: int, look: Look, *, is_full: bool) -> Taken | None:
        """Wait for the end of all inputs, then hand out one part after the other."""
        if is_full or not all(log.is_complete() and log.pending() for log in self._logs.values()):
            return None
        entries: dict[ChannelId, Sequence[Entry]] = {
            c: list(log.pending()) for c, log in self._logs.items()
        }
        rows = sum(e.rows for part in entries.values() for e in part)
        parts = max(1, -(-rows // self._max_records))
        part, self._part = self._part, self._part + 1
        last = self._part == parts
        return Taken(
            work_of(entries, self._parallelism),
            last,
            consumed={c: len(e) for c, e in entries.items()} if last else {},
            key_slice=(part, parts),
        )


class BroadcastFirstInput(ChannelInput):
    """BATCH mode: all that is broadcast, and only then anything else."""

    def __init__(
        self,
        logs: Mapping[ChannelId, ChannelLog],
        parallelism: int,
        forward: Collection[ChannelId],
        first: Collection[ChannelId],
    ) -> None:
        super().__init__(logs, parallelism, forward)
        self._broadcast = ChannelInput({c: logs[c] for c in first}, parallelism, forward)
        self._first = [logs[c] for c in first]

    def take(self, max_records: int, look: Look, *, is_full: bool) -> Taken | None:
        """Take from the broadcast channels until their end was published."""
        if self._has_all():
            return super().take(max_records, look, is_full=is_full)
        taken = self._broadcast.take(max_records, look, is_full=is_full)
        return None if taken is None else replace(taken, end_of_input=False)

    def wants(self, records: int, *, light: bool) -> None:
        """Leave word only where records are taken: the others wait for all that is broadcast."""
        if self._has_all():
            super().wants(records, light=light)

    def _has_all(self) -> bool:
        return all(log.has_ended for log in self._first)


def work_of(entries: Mapping[ChannelId, Sequence[Entry]], parallelism: int) -> list[SubtaskWork]:
    """Deal out the segments of some entries: to each subtask its own slices, in order."""
    work = []
    for subtask in range(parallelism):
        segments: dict[int, list[SegmentRead]] = {}
        for channel, taken in entries.items():
            reads = [
                SegmentRead(segment.name, segment.slices[subtask])
                for entry in taken
                for segment in entry.segments
                if segment.slices[subtask]
            ]
            if reads:
                segments[channel] = reads
        work.append(SubtaskWork(segments=segments))
    return work
