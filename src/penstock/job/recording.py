"""Between a stage's loop and its lane: what a barrier overtook, until a checkpoint holds it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from penstock.channel.log import Entry
from penstock.checkpoint.in_flight import AbandonedError, InFlight, Overtaken
from penstock.ids import ChannelId, CheckpointId


class Recording:
    """One checkpoint's records in flight at one stage.

    The loop observes and abandons, the lane waits and ends. Until it is over nobody may delete the
    files it names.
    """

    def __init__(self, checkpoint: CheckpointId, stands: Mapping[ChannelId, int]) -> None:
        self._in_flight = InFlight(checkpoint, dict(stands))
        self._settled = threading.Event()
        self._is_abandoned = False
        self._is_over = False

    @property
    def checkpoint(self) -> CheckpointId:
        """Whose records these are."""
        return self._in_flight.checkpoint

    @property
    def is_settled(self) -> bool:
        """Whether nothing more can be recorded."""
        return self._settled.is_set()

    @property
    def is_over(self) -> bool:
        """Whether the files are not needed any more."""
        return self._is_over

    def observe(self, channel: ChannelId, position: int, waiting: Sequence[Entry]) -> None:
        """Look at what waits in an input, before anything of it is consumed."""
        if not self.is_settled:
            self._in_flight.observe(channel, position, waiting)

    def settle(self) -> bool:
        """Let the lane go on, if the barrier has landed everywhere; true the first time."""
        if self.is_settled or not self._in_flight.is_complete:
            return False
        self._settled.set()
        return True

    def abandon(self) -> None:
        """Give up: the checkpoint has come to its end in another way."""
        if not self.is_settled:
            self._is_abandoned = self._is_over = True
            self._settled.set()

    def wait(self) -> Mapping[ChannelId, Overtaken]:
        """Wait for the barrier in every input; return what it overtook there.

        Raises:
            AbandonedError: the checkpoint is over.
        """
        self._settled.wait()
        if self._is_abandoned:
            raise AbandonedError
        return self._in_flight.inputs

    def end(self) -> None:
        """Let go of the files: they are copied, or the checkpoint has failed."""
        self._is_over = True

    def needs(self, channel: ChannelId, entry: Entry) -> bool:
        """Whether an entry's files must stay."""
        return not self._is_over and self._in_flight.has(channel, entry)
