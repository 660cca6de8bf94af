"""The inputs of stages that read channels, in STREAMING and in BATCH mode."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from penstock.channel.log import ChannelLog, Entry, latest_watermark_status
from penstock.checkpoint.barriers.alignment import BarrierHandling, InputFacts, decide_alignment
from penstock.ids import ChannelId, CheckpointId
from penstock.job.input.in_flight_data_collector import InFlightDataCollector
from penstock.job.input.stage_input import (
    BlockedInput,
    Entries,
    MicroBatchInput,
    ReadView,
    StageInput,
)
from penstock.task.messages import SegmentRead, SubtaskWork

Logs = Mapping[ChannelId, ChannelLog]
Facts = Mapping[ChannelId, InputFacts]


class ChannelInput(StageInput):
    """Reads all channels of a stage, each as far as the next barrier allows."""

    def __init__(self, logs: Logs, parallelism: int, forward: Collection[ChannelId] = ()) -> None:
        self._logs = logs
        self._parallelism = parallelism
        # Subtasks share a source's split: with two entries of a forward channel in one micro-batch
        # a subtask would read its piece of the second before another its piece of the first.
        self._max_entries = {channel: 1 for channel in forward if parallelism > 1}
        self._blocked: BlockedInput | None = None
        self._writers: list[InFlightDataCollector] = []
        """Of checkpoints whose barriers have overtaken records here."""
        self._retained: Entries = []
        """Consumed entries that a checkpoint has not copied yet."""

    def poll(self, size: int, passed: CheckpointId, view: ReadView) -> MicroBatchInput | None:
        """Take the entries that fit, up to the barriers."""
        facts = {
            channel: InputFacts(
                log.pending(), log.has_ended, self._max_entries.get(channel), log.passed
            )
            for channel, log in self._logs.items()
        }
        live = view().barriers
        self._write_channel_state(facts, live)
        decision = decide_alignment(facts, live, max(size, 1), passed)
        self._blocked = None
        if decision.overtakes:
            assert decision.barrier is not None
            return self._overtake(decision.barrier, facts)
        if decision.blocked:
            checkpoint = min(decision.blocked.values())
            sizes = {channel: self._logs[channel].size for channel in decision.blocked}
            self._blocked = BlockedInput(checkpoint, sizes)
        entries = {c: facts[c].entries[:count] for c, count in decision.take.items()}
        if not entries or (size == 0 and any(e.segments for es in entries.values() for e in es)):
            return None
        return MicroBatchInput(
            work_by_subtask(entries, self._parallelism),
            decision.end_of_input,
            consumed=dict(decision.take),
            barrier=decision.barrier,
            watermarks={
                c: status
                for c, es in entries.items()
                if (status := latest_watermark_status(es)) is not None
            },
        )

    def _overtake(self, checkpoint: CheckpointId, facts: Facts) -> MicroBatchInput:
        """Let an unaligned barrier overtake all waiting records, which become in-flight data."""
        writer = InFlightDataCollector(
            checkpoint, {c: log.position for c, log in self._logs.items()}
        )
        self._writers.append(writer)
        self._write_channel_state(facts, {checkpoint: BarrierHandling.UNALIGNED})
        no_work = [SubtaskWork()] * self._parallelism
        return MicroBatchInput(no_work, barrier=checkpoint, channel_state=writer)

    def _write_channel_state(
        self, facts: Facts, live: Mapping[CheckpointId, BarrierHandling]
    ) -> None:
        for writer in self._writers:
            if writer.checkpoint not in live:
                writer.abort()
            for channel, log in self._logs.items():
                writer.observe(channel, log.position, facts[channel].entries)
            writer.finish_if_complete()

    def blocked(self) -> BlockedInput | None:
        """Return the channels that are blocked at a barrier."""
        return self._blocked

    def notify_published(self, batch: MicroBatchInput, records: int) -> Entries:
        """Consume the entries of the micro-batch, but retain those a checkpoint still copies."""
        consumed = self._retained + [
            (channel, entry)
            for channel, count in batch.consumed.items()
            for entry in self._logs[channel].consume(count)
        ]
        self._writers = [w for w in self._writers if not w.is_released]
        unneeded: Entries = []
        self._retained = []
        for channel, entry in consumed:
            is_needed = any(w.needs(channel, entry) for w in self._writers)
            (self._retained if is_needed else unneeded).append((channel, entry))
        return unneeded

    def close(self) -> None:
        """Abort unfinished channel state: its checkpoint executor must not wait forever."""
        for writer in self._writers:
            writer.abort()

    def set_preferred_size(self, records: int, *, light: bool) -> None:
        """Leave the size in every channel, where its producer reads it."""
        for log in self._logs.values():
            log.preferred_records = records
            log.is_light = light


class GroupedInput(ChannelInput):
    """BATCH mode, keyed: waits for all input, then reads it in slices of the key groups."""

    def __init__(self, logs: Logs, parallelism: int, max_records: int) -> None:
        super().__init__(logs, parallelism)
        self._max_records = max_records
        self._slice = 0

    def poll(self, size: int, passed: CheckpointId, view: ReadView) -> MicroBatchInput | None:
        """Wait for the end of all inputs, then return one slice after the other."""
        if size == 0 or not all(log.is_complete() and log.pending() for log in self._logs.values()):
            return None
        entries = {c: log.pending() for c, log in self._logs.items()}
        rows = sum(e.rows for es in entries.values() for e in es)
        slices = max(1, -(-rows // self._max_records))
        key_slice = self._slice, slices
        self._slice += 1
        is_last = self._slice == slices
        return MicroBatchInput(
            work_by_subtask(entries, self._parallelism),
            is_last,
            consumed={c: len(es) for c, es in entries.items()} if is_last else {},
            key_slice=key_slice,
        )


class BroadcastFirstInput(ChannelInput):
    """BATCH mode, broadcast state: reads all broadcast channels before the others."""

    def __init__(
        self,
        logs: Logs,
        parallelism: int,
        forward: Collection[ChannelId],
        broadcast: Collection[ChannelId],
    ) -> None:
        super().__init__(logs, parallelism, forward)
        self._broadcast_logs = {c: logs[c] for c in broadcast}
        self._broadcast = ChannelInput(self._broadcast_logs, parallelism, forward)

    def poll(self, size: int, passed: CheckpointId, view: ReadView) -> MicroBatchInput | None:
        """Read the broadcast channels until their end is published, then the others."""
        if self._has_all_broadcast():
            return super().poll(size, passed, view)
        batch = self._broadcast.poll(size, passed, view)
        return None if batch is None else replace(batch, end_of_input=False)

    def set_preferred_size(self, records: int, *, light: bool) -> None:
        """Do nothing while the other channels only collect what is to be read later."""
        if self._has_all_broadcast():
            super().set_preferred_size(records, light=light)

    def _has_all_broadcast(self) -> bool:
        return all(log.has_ended for log in self._broadcast_logs.values())


def work_by_subtask(
    entries: Mapping[ChannelId, Sequence[Entry]], parallelism: int
) -> list[SubtaskWork]:
    """Assign the segments of some entries: each subtask reads its own slices, in order."""
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
