"""What the loops of a job tell each other: something changed, it is over, it failed."""

from __future__ import annotations

import threading


class Board:
    """A place to wait at; every change wakes all who wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._version = 0
        self._stopping = False
        self._is_over = False
        self._failure: BaseException | None = None

    @property
    def version(self) -> int:
        """A number that grows with every change; read it before looking at the facts."""
        return self._version

    @property
    def stopping(self) -> bool:
        """Whether loops should end before their next micro-batch."""
        return self._stopping

    @property
    def is_over(self) -> bool:
        """Whether the job has come to its end: nothing is left to do for anyone."""
        return self._is_over

    @property
    def failure(self) -> BaseException | None:
        """The first thing that went wrong, if any."""
        return self._failure

    def change(self) -> None:
        """Wake everyone."""
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    def wait(self, seen: int, seconds: float | None) -> None:
        """Sleep until there is a change after version `seen`, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != seen, seconds)

    def stop(self) -> None:
        """End all loops between micro-batches."""
        self._stopping = True
        self.change()

    def finish(self) -> None:
        """End all loops: everything is processed and, with checkpoints, in the last one."""
        self._is_over = True
        self.change()

    def fail(self, error: BaseException) -> bool:
        """End all loops because of `error`; true for the first failure only."""
        with self._changed:
            first = self._failure is None and not self._stopping
            if self._failure is None:
                self._failure = error
            self._stopping = True
        self.change()
        return first
