"""The contract of a stage's input: what the next micro-batch reads, and where it ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from penstock.channel.log import Entry, WatermarkStatus
from penstock.checkpoint.coordinator.view import CoordinatorView
from penstock.ids import ChannelId, CheckpointId
from penstock.job.input.in_flight_data_collector import InFlightDataCollector
from penstock.task.messages import SubtaskWork


@dataclass(frozen=True, slots=True)
class MicroBatchInput:
    """The input of one micro-batch, fixed before its first try."""

    work: list[SubtaskWork]
    end_of_input: bool = False
    consumed: dict[ChannelId, int] = field(default_factory=dict)
    """Per channel, how many log entries the micro-batch consumes."""
    positions: dict[str, int] = field(default_factory=dict)
    """Per split of a source, the position after this micro-batch."""
    key_slice: tuple[int, int] | None = None
    barrier: CheckpointId | None = None
    """The checkpoint whose snapshot is taken after this micro-batch."""
    channel_state: InFlightDataCollector | None = None
    """The in-flight data of that checkpoint, if its barrier overtakes records."""
    watermarks: dict[ChannelId, WatermarkStatus] = field(default_factory=dict)
    """The watermark status of each channel after the consumed entries."""

    @property
    def is_empty(self) -> bool:
        """Whether there are no records to read."""
        return not any(w.ranges or w.segments for w in self.work)

    def splits(self) -> set[str]:
        """Return the splits with records: those of a source, or subtasks that read channels."""
        splits = {r.split for w in self.work for r in w.ranges}
        return splits | {f"#{i}" for i, w in enumerate(self.work) if w.segments}


@dataclass(frozen=True, slots=True)
class BlockedInput:
    """A pending alignment: the channels blocked at a barrier, and the bytes waiting in each."""

    checkpoint: CheckpointId
    bytes: Mapping[ChannelId, int]


ReadView = Callable[[], CoordinatorView]
"""Reads the pending checkpoints. An input reads its channel logs *first*: a barrier found there was
triggered earlier, so a view read afterwards includes its checkpoint unless that has ended."""

Entries = list[tuple[ChannelId, Entry]]


class StageInput(ABC):
    """The input of one stage; called only by the thread of its region loop."""

    @abstractmethod
    def poll(self, size: int, passed: CheckpointId, view: ReadView) -> MicroBatchInput | None:
        """Fix the input of the next micro-batch, of about `size` records; None if there is none.

        With size 0 only input without records: a barrier, or the end of input. `passed` is the last
        checkpoint that the stage took part in.
        """

    @abstractmethod
    def notify_published(self, batch: MicroBatchInput, records: int) -> Entries:
        """Record that the micro-batch is published; return the log entries to delete."""

    def wait_seconds(self) -> float | None:
        """Return how long to wait at most for a signal, None for no limit."""
        return None

    def blocked(self) -> BlockedInput | None:
        """Return the alignment that the last `poll` saw, if any."""
        return None

    def set_preferred_size(self, records: int, *, light: bool) -> None:  # noqa: B027
        """Tell the producers how many records this stage prefers per micro-batch.

        `light` says that its last micro-batch took hardly longer than an empty one.
        """

    def pending_records(self) -> int | None:
        """Return how many records of the source have not been planned, None if it is not known."""
        return None

    def parallel_splits(self) -> Collection[str]:
        """Return the splits of the source that hold back the watermark."""
        return ()

    def is_finished(self, split: str) -> bool:
        """Whether a split of the source was read to its end."""
        return False

    def close(self) -> None:  # noqa: B027
        """Release what the input holds."""
