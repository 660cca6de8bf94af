"""What a stage may read next: a source's ranges, or the entries of its channels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.channel.log import ChannelLog, Entry, entries_to_take
from penstock.connectors.source import SourceEnumerator
from penstock.ids import ChannelId
from penstock.task.messages import SegmentRead, SubtaskWork


@dataclass(frozen=True, slots=True)
class Taken:
    """The input of one micro-batch, fixed before its first try."""

    work: list[SubtaskWork]
    end_of_input: bool
    consumed: dict[ChannelId, int] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    key_slice: tuple[int, int] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read in it."""
        return not any(w.ranges or w.segments for w in self.work)


class StageInput(ABC):
    """One stage's input as its loop sees it; called under the job's lock."""

    @abstractmethod
    def take(self, max_records: int) -> Taken | None:
        """Fix the input of the next micro-batch; None if there is none now."""

    @abstractmethod
    def published(self, taken: Taken, records: int) -> list[tuple[ChannelId, Entry]]:
        """Learn that its effects count; return the log entries nobody needs any more."""

    @abstractmethod
    def wait_seconds(self) -> float | None:
        """Return how long to sleep without a signal; None until there is one."""

    def wants(self, records: int) -> None:  # noqa: B027
        """Tell whoever produces the input how many records are good to take at once."""

    def close(self) -> None:  # noqa: B027
        """Release what the input holds."""


class SourceInput(StageInput):
    """A stage that reads an external source."""

    def __init__(self, enumerator: SourceEnumerator, parallelism: int, poll_seconds: float) -> None:
        self._enumerator = enumerator
        self._parallelism = parallelism
        self._poll_seconds = poll_seconds
        self._end_told = False

    def take(self, max_records: int) -> Taken | None:
        """Ask the source for ranges."""
        if self._end_told:
            return None
        plan = self._enumerator.plan(max_records)
        end = self._enumerator.finished()
        if not plan and not end:
            return None
        self._end_told = end
        positions = self._enumerator.positions()
        planned = {r.split: positions[r.split] for ranges in plan for r in ranges}
        work = [SubtaskWork(ranges=list(ranges)) for ranges in plan]
        work += [SubtaskWork()] * (self._parallelism - len(work))
        return Taken(work, end, positions=planned)

    def published(self, taken: Taken, records: int) -> list[tuple[ChannelId, Entry]]:
        """Tell the source how many records its ranges held."""
        ranges = [r for w in taken.work for r in w.ranges]
        if ranges:
            self._enumerator.observe(records, ranges)
        return []

    def wait_seconds(self) -> float | None:
        """Return the source's own wish, but never spin."""
        wish = self._enumerator.next_poll()
        return None if wish is None else max(wish, self._poll_seconds / 10)

    def close(self) -> None:
        """Close the source's enumerator."""
        self._enumerator.close()


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

    def take(self, max_records: int) -> Taken | None:
        """Take what has been appended, as far as it fits."""
        taken: dict[ChannelId, Sequence[Entry]] = {}
        for channel, log in self._logs.items():
            pending = log.pending()
            count = entries_to_take(pending, max_records, self._most.get(channel))
            if count:
                taken[channel] = [pending[i] for i in range(count)]
        if not taken:
            return None
        consumed = {c: len(entries) for c, entries in taken.items()}
        return Taken(
            work_of(taken, self._parallelism),
            all(log.ends_within(consumed.get(c, 0)) for c, log in self._logs.items()),
            consumed=consumed,
        )

    def published(self, taken: Taken, records: int) -> list[tuple[ChannelId, Entry]]:
        """Drop the entries that were taken."""
        return [
            (channel, entry)
            for channel, count in taken.consumed.items()
            for entry in self._logs[channel].consume(count)
        ]

    def wants(self, records: int) -> None:
        """Leave word at every channel."""
        for log in self._logs.values():
            log.wanted = records

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

    def take(self, max_records: int) -> Taken | None:
        """Wait for the end of all inputs, then hand out one part after the other."""
        if not all(log.is_complete() and log.pending() for log in self._logs.values()):
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
