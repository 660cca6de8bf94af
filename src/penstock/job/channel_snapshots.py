"""The inputs of a stage in a checkpoint: what was in flight in them, and what waited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path

from msgspec.structs import replace

from penstock.channel.log import Entry, EntryKind
from penstock.checkpoint.channel_files import SegmentCopy, bring_back, keep_segments
from penstock.checkpoint.in_flight import Overtaken
from penstock.checkpoint.metadata import ChannelState, ChannelStats, in_flight_file
from penstock.checkpoint.story import StoryEvent
from penstock.common.memory_sizes import size
from penstock.crash_points import CrashPoint, reach
from penstock.ids import ChannelId, CheckpointId
from penstock.job.recording import Recording
from penstock.recovery.channels import ChannelEnds
from penstock.task.layout import Layout


class ChannelSnapshots:
    """Keeps what was in flight to one stage; called by the stage's lane."""

    def __init__(
        self,
        ends: Sequence[ChannelEnds],
        layout: Layout,
        place: Callable[[CheckpointId], Path],
        tell: Callable[[CheckpointId, StoryEvent, str], None],
    ) -> None:
        """Prepare; `place` is where the files of a checkpoint go that are its own alone."""
        self._ends = ends
        self._layout = layout
        self._place = place
        self._tell = tell

    def keep(self, checkpoint: CheckpointId, recording: Recording | None) -> list[ChannelState]:
        """Wait until all that a barrier has overtaken is known, and make it durable.

        Raises:
            AbandonedError: the checkpoint is over.
            CorruptSegmentError: a segment that belongs to the checkpoint is damaged.
        """
        if recording is None:
            return []
        inputs = recording.wait()
        reach(CrashPoint.STAGE_IN_FLIGHT_RECORDED)
        states = [self._state(end, inputs[end.channel.id]) for end in self._ends]
        keep_segments(
            SegmentCopy(
                segment,
                self._layout.channel(end.channel.id) / segment.name,
                self._place(checkpoint) / in_flight_file(end.consumer.uid, state, segment),
            )
            for end, state in zip(self._ends, states, strict=True)
            for entry in state.entries
            for segment in entry
        )
        reach(CrashPoint.STAGE_IN_FLIGHT_KEPT)
        self._tell_all(checkpoint, states)
        return [state for state in states if state.entries]

    def tell_held(self, checkpoint: CheckpointId, held: Mapping[ChannelId, int]) -> None:
        """Tell in a checkpoint's story how much waited in which input for the others."""
        for end in self._ends:
            if waited := held.get(end.channel.id, 0):
                what = f"from {end.producer.name}: {size(waited)}"
                self._tell(checkpoint, StoryEvent.INPUT_HELD, what)

    def stats(
        self, held: Mapping[ChannelId, int], in_flight: Sequence[ChannelState]
    ) -> list[ChannelStats]:
        """Return the figures of all inputs."""
        kept = {(s.producer, s.input, s.ordinal): s for s in in_flight}
        return [
            ChannelStats(
                producer=end.producer.uid,
                producer_name=end.producer.name,
                input=end.channel.input + 1,
                bytes_held=held.get(end.channel.id, 0),
                in_flight_bytes=sum(s.size for s in segments),
                in_flight_records=sum(s.rows for s in segments),
            )
            for end in self._ends
            for state in [kept.get((end.producer.uid, end.channel.input, end.ordinal))]
            for segments in [[s for e in state.entries for s in e] if state else []]
        ]

    def _state(self, end: ChannelEnds, overtaken: Overtaken) -> ChannelState:
        return ChannelState(
            producer=end.producer.uid,
            input=end.channel.input,
            ordinal=end.ordinal,
            exchange=end.channel.exchange.value,
            parallelism=end.consumer.parallelism,
            type=end.type,
            attempt=self._layout.attempt,
            start=overtaken.start,
            end=overtaken.end,
            entries=[list(entry.segments) for entry in overtaken.entries],
            tag=end.channel.tag,
        )

    def _tell_all(self, checkpoint: CheckpointId, states: Sequence[ChannelState]) -> None:
        for end, state in zip(self._ends, states, strict=True):
            segments = [s for entry in state.entries for s in entry]
            rows, taken = sum(s.rows for s in segments), size(sum(s.size for s in segments))
            what = f"from {end.producer.name}: {rows} records, {taken}"
            self._tell(checkpoint, StoryEvent.IN_FLIGHT_COMPLETE, what)


def bytes_of(in_flight: Sequence[ChannelState], subtask: int) -> int:
    """Return how many bytes were in flight to one subtask."""
    return sum(
        part.length
        for state in in_flight
        for entry in state.entries
        for segment in entry
        for part in segment.slices[subtask]
    )


def restore_channel(
    end: ChannelEnds, state: ChannelState, checkpoint: Path, layout: Layout
) -> list[Entry]:
    """Bring what was in flight to where a new attempt reads it; return it as log entries.

    Raises:
        CorruptStateError: a file of the checkpoint is missing or damaged.
    """
    names = (f"restored-{number}.arrow" for number in count())
    # New names: the old ones are of another attempt, perhaps of another job with the same number.
    entries = [[replace(segment, name=next(names)) for segment in e] for e in state.entries]
    bring_back(
        SegmentCopy(
            segment,
            checkpoint / in_flight_file(end.consumer.uid, state, old),
            layout.channel(end.channel.id) / segment.name,
        )
        for segment, old in zip(chain(*entries), chain(*state.entries), strict=True)
    )
    return [Entry(EntryKind.DATA, tuple(segments)) for segments in entries]
