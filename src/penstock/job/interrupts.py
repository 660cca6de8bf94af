"""Ctrl-C while a program waits for its job."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any, Protocol


class _Job(Protocol):
    def suspend(self) -> None: ...

    def kill(self) -> None: ...


class Interrupts:
    """Turns Ctrl-C into a cancel while a program waits for its job."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._before: Any = None
        self.count = 0

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1:
            print(
                "ending after the micro-batches that run now; Ctrl-C again to end at once",
                file=sys.stderr,
            )
            self._job.suspend()
        else:
            self._job.kill()
