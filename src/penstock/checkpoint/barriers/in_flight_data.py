"""The in-flight data of an unaligned checkpoint: records that its barrier has overtaken.

For every input these are the entries from the stage's position at the snapshot up to the barrier.
An input whose barrier has not arrived yet stays open: its entries are still recorded, though the
stage consumes them meanwhile, until the barrier arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.channel.log import Entry, EntryKind
from penstock.ids import ChannelId, CheckpointId


class ChannelStateAbortedError(Exception):
    """In-flight data is not recorded any more: its checkpoint, or the attempt, is over."""


@dataclass(slots=True)
class ChannelInFlightData:
    """The in-flight data of one input, by positions in its log."""

    start: int
    end: int
    """Up to here, exclusive, the log has been observed."""
    entries: list[Entry] = field(default_factory=list)
    """Those with data."""
    is_closed: bool = False
    """Whether the barrier has arrived."""


class InFlightData:
    """The in-flight data of one checkpoint at one stage; used by the region loop alone."""

    def __init__(self, checkpoint: CheckpointId, positions: dict[ChannelId, int]) -> None:
        """Start at the snapshot, with the positions of the inputs there."""
        self.checkpoint = checkpoint
        self._inputs = {c: ChannelInFlightData(at, at) for c, at in positions.items()}

    def observe(self, channel: ChannelId, position: int, waiting: Sequence[Entry]) -> None:
        """Record the entries that wait in an input, before any of them is consumed.

        `position` is that of the first entry that waits.
        """
        data = self._inputs[channel]
        if data.is_closed:
            return
        assert position <= data.end, f"entries from {data.end} on were consumed unseen"
        for entry in waiting[data.end - position :]:
            if entry.checkpoint is not None and entry.checkpoint >= self.checkpoint:
                # Nothing after a later barrier can be before this one.
                data.is_closed = True
                return
            data.end += 1
            if entry.kind is EntryKind.DATA:
                data.entries.append(entry)

    @property
    def is_complete(self) -> bool:
        """Whether the barrier has arrived in every input."""
        return all(data.is_closed for data in self._inputs.values())

    @property
    def inputs(self) -> dict[ChannelId, ChannelInFlightData]:
        """What was recorded, by input."""
        return dict(self._inputs)

    def contains(self, channel: ChannelId, entry: Entry) -> bool:
        """Whether an entry was recorded."""
        return any(entry is recorded for recorded in self._inputs[channel].entries)
