"""Stores the in-flight data and alignment figures of a stage's input channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from penstock.checkpoint.barriers.channel_state_files import SegmentCopy, copy_into_checkpoint
from penstock.checkpoint.barriers.in_flight_data import ChannelInFlightData
from penstock.checkpoint.event_log import CheckpointEvent
from penstock.checkpoint.storage.metadata import ChannelState, ChannelStats, in_flight_file
from penstock.common.storage_url import Location
from penstock.common.text.memory_sizes import size
from penstock.crash_points import CrashPoint, reach
from penstock.ids import ChannelId, CheckpointId
from penstock.job.input.in_flight_data_collector import InFlightDataCollector
from penstock.recovery.channel_matching import ChannelEndpoints
from penstock.task.layout import AttemptLayout

RecordEvent = Callable[[CheckpointId, CheckpointEvent, str], None]
"""Adds an event of a stage to a checkpoint's event log."""


@dataclass(frozen=True, slots=True)
class ChannelStateWriter:
    """Copies in-flight data of one stage into checkpoints; called by its checkpoint executor."""

    endpoints: Sequence[ChannelEndpoints]
    layout: AttemptLayout
    directory: Callable[[CheckpointId], Location]
    """Returns the exclusive directory of a checkpoint."""
    record: RecordEvent

    def keep(
        self, checkpoint: CheckpointId, channel_state: InFlightDataCollector | None
    ) -> list[ChannelState]:
        """Wait until the barrier has arrived in every channel, and copy the in-flight data.

        Raises:
            ChannelStateAbortedError: the checkpoint has ended.
            CorruptSegmentError: a segment that belongs to the checkpoint is damaged.
        """
        if channel_state is None:
            return []
        inputs = channel_state.wait()
        reach(CrashPoint.STAGE_IN_FLIGHT_RECORDED)
        states = [self._state(end, inputs[end.channel.id]) for end in self.endpoints]
        copy_into_checkpoint(
            SegmentCopy(
                segment,
                self.layout.channel(end.channel.id) / segment.name,
                self.directory(checkpoint) / in_flight_file(end.consumer.uid, state, segment),
            )
            for end, state in zip(self.endpoints, states, strict=True)
            for segment in chain(*state.entries)
        )
        reach(CrashPoint.STAGE_IN_FLIGHT_KEPT)
        self._record_complete(checkpoint, states)
        return [state for state in states if state.entries]

    def record_blocked(self, checkpoint: CheckpointId, blocked: Mapping[ChannelId, int]) -> None:
        """Record in the event log how many bytes were blocked in which channel."""
        for end in self.endpoints:
            if waited := blocked.get(end.channel.id, 0):
                what = f"from {end.producer.name}: {size(waited)}"
                self.record(checkpoint, CheckpointEvent.INPUT_BLOCKED, what)

    def stats(
        self, blocked: Mapping[ChannelId, int], in_flight: Sequence[ChannelState]
    ) -> list[ChannelStats]:
        """Return the figures of all channels."""
        kept = {(s.producer, s.input, s.ordinal): s for s in in_flight}
        return [
            ChannelStats(
                producer=end.producer.uid,
                producer_name=end.producer.name,
                input=end.channel.input + 1,
                blocked_bytes=blocked.get(end.channel.id, 0),
                in_flight_bytes=sum(s.size for s in segments),
                in_flight_records=sum(s.rows for s in segments),
            )
            for end in self.endpoints
            for state in [kept.get((end.producer.uid, end.channel.input, end.ordinal))]
            for segments in [list(chain(*state.entries)) if state else []]
        ]

    def _state(self, end: ChannelEndpoints, data: ChannelInFlightData) -> ChannelState:
        return ChannelState(
            producer=end.producer.uid,
            input=end.channel.input,
            ordinal=end.ordinal,
            exchange=end.channel.exchange.value,
            parallelism=end.consumer.parallelism,
            type=end.type,
            attempt=self.layout.attempt,
            start=data.start,
            end=data.end,
            entries=[list(entry.segments) for entry in data.entries],
            tag=end.channel.tag,
        )

    def _record_complete(self, checkpoint: CheckpointId, states: Sequence[ChannelState]) -> None:
        for end, state in zip(self.endpoints, states, strict=True):
            segments = list(chain(*state.entries))
            rows, taken = sum(s.rows for s in segments), size(sum(s.size for s in segments))
            what = f"from {end.producer.name}: {rows} records, {taken}"
            self.record(checkpoint, CheckpointEvent.IN_FLIGHT_COMPLETE, what)


def in_flight_bytes(in_flight: Sequence[ChannelState], subtask: int) -> int:
    """Return the size of the in-flight data of one subtask."""
    return sum(
        part.length
        for state in in_flight
        for segment in chain(*state.entries)
        for part in segment.slices[subtask]
    )
