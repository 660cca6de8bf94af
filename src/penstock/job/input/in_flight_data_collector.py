"""Passes in-flight data of an unaligned checkpoint from region loop to checkpoint executor."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from penstock.channel.log import Entry
from penstock.checkpoint.barriers import in_flight_data
from penstock.ids import ChannelId, CheckpointId


class InFlightDataCollector:
    """Collects the in-flight data of one checkpoint at one stage; `ChannelStateWriter` writes it.

    Shared by two threads. The region loop observes entries and aborts; the checkpoint executor
    waits for completion, copies the files and releases them. The loop stops writing before it sets
    the event, and the executor reads only after it, so the data itself needs no lock. Until
    `is_released` the loop must not delete the files of the entries.
    """

    def __init__(self, checkpoint: CheckpointId, positions: Mapping[ChannelId, int]) -> None:
        """Start at the snapshot point; `positions` are those of the channel logs there."""
        self.checkpoint = checkpoint
        self._in_flight = in_flight_data.InFlightData(checkpoint, dict(positions))
        self._finished = threading.Event()
        self._is_aborted = False
        self.is_released = False
        """Whether the files are no longer needed."""

    def observe(self, channel: ChannelId, position: int, waiting: Sequence[Entry]) -> None:
        """Record what waits in a channel, before any of it is consumed."""
        if not self._finished.is_set():
            self._in_flight.observe(channel, position, waiting)

    def finish_if_complete(self) -> bool:
        """Let the executor continue once all barriers have arrived; true the first time."""
        if self._finished.is_set() or not self._in_flight.is_complete:
            return False
        self._finished.set()
        return True

    def abort(self) -> None:
        """Stop recording: the checkpoint or the attempt has ended."""
        if not self._finished.is_set():
            self._is_aborted = self.is_released = True
            self._finished.set()

    def wait(self) -> Mapping[ChannelId, in_flight_data.ChannelInFlightData]:
        """Wait for the barrier in every channel; return the in-flight data by channel.

        Raises:
            ChannelStateAbortedError: the checkpoint has ended.
        """
        self._finished.wait()
        if self._is_aborted:
            raise in_flight_data.ChannelStateAbortedError
        return self._in_flight.inputs

    def release(self) -> None:
        """Allow the files to be deleted: they are copied, or the checkpoint has failed."""
        self.is_released = True

    def needs(self, channel: ChannelId, entry: Entry) -> bool:
        """Whether the files of an entry must not be deleted yet."""
        return not self.is_released and self._in_flight.contains(channel, entry)
