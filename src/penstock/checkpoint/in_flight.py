"""What a barrier has overtaken: the records of each input that belong to a checkpoint.

For every input these are the entries from where the stage stood at its cut up to the barrier. An
input whose barrier has not come yet stays open: its entries go on being recorded, though the
stage consumes them as it goes, until the barrier has landed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.channel.log import Entry, EntryKind
from penstock.ids import ChannelId, CheckpointId


class AbandonedError(Exception):
    """What a barrier overtook is not recorded any more: its checkpoint, or the attempt, is over."""


@dataclass(slots=True)
class Overtaken:
    """The recorded part of one input, by positions in its log."""

    start: int
    end: int
    """Up to here, exclusive, the log has been looked at."""
    entries: list[Entry] = field(default_factory=list)
    """Those with data."""
    is_closed: bool = False
    """Whether the barrier has landed."""


class InFlight:
    """The recording of one checkpoint at one stage; used by the stage's loop alone."""

    def __init__(self, checkpoint: CheckpointId, stands: dict[ChannelId, int]) -> None:
        """Begin at the cut; `stands` are the positions of the inputs there."""
        self.checkpoint = checkpoint
        self._inputs = {channel: Overtaken(at, at) for channel, at in stands.items()}

    def observe(self, channel: ChannelId, position: int, waiting: Sequence[Entry]) -> None:
        """Look at what waits in an input, before anything of it is consumed.

        `position` is that of the first entry that waits.
        """
        mine = self._inputs[channel]
        if mine.is_closed:
            return
        assert position <= mine.end, f"entries from {mine.end} on were consumed unseen"
        for entry in waiting[mine.end - position :]:
            if entry.checkpoint is not None and entry.checkpoint >= self.checkpoint:
                # Behind a later barrier nothing can be before this one.
                mine.is_closed = True
                return
            mine.end += 1
            if entry.kind is EntryKind.DATA:
                mine.entries.append(entry)

    @property
    def is_complete(self) -> bool:
        """Whether the barrier has landed in every input."""
        return all(mine.is_closed for mine in self._inputs.values())

    @property
    def inputs(self) -> dict[ChannelId, Overtaken]:
        """What was recorded, by input."""
        return dict(self._inputs)

    def has(self, channel: ChannelId, entry: Entry) -> bool:
        """Whether an entry was recorded."""
        return any(entry is mine for mine in self._inputs[channel].entries)
