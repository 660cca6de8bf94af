"""The shared status of a running attempt: changed, stopping, finished, failed."""

from __future__ import annotations

import threading


class JobSignals:
    """Wakes the region loops, and tells them when to stop.

    Shared by all loops, the coordinator and the job. Flags are set before the version is
    increased: a loop that reads the version first and then the flags cannot miss a change.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.version = 0
        """Increases with every change; read it before anything else."""
        self.stopping = False
        """Whether loops must end before their next micro-batch."""
        self.is_finished = False
        """Whether all input is processed and, with checkpointing, in the last checkpoint."""
        self.failure: BaseException | None = None
        """The first failure, if any."""

    def notify(self) -> None:
        """Wake all waiting loops."""
        with self._changed:
            self.version += 1
            self._changed.notify_all()

    def wait(self, seen: int, seconds: float | None) -> None:
        """Wait until there is a change after version `seen`, or for some seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.version != seen, seconds)

    def stop(self) -> None:
        """End all loops between micro-batches."""
        self.stopping = True
        self.notify()

    def finish(self) -> None:
        """End all loops because the job has finished."""
        self.is_finished = True
        self.notify()

    def fail(self, error: BaseException) -> bool:
        """End all loops because of `error`; true for the first failure only."""
        with self._changed:
            first = self.failure is None and not self.stopping
            if self.failure is None:
                self.failure = error
            self.stopping = True
        self.notify()
        return first
