"""Bringing a stream's records back into the program."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Protocol, Self

__all__ = ["CloseableIterator", "Received"]

_END = object()

_PATIENCE_SECONDS = 60.0
"""How long closing waits for running micro-batches, so that nothing is left behind."""


class Received:
    """Records on their way from the publishing thread to the iterating one; bounded."""

    def __init__(self, most_batches: int = 64) -> None:
        self._batches: queue.Queue[Any] = queue.Queue(most_batches)
        self._closed = threading.Event()

    def put(self, records: list[Any]) -> None:
        """Hand over records; waits while the reader is far behind."""
        while not self._closed.is_set():
            try:
                self._batches.put(records, timeout=0.2)
            except queue.Full:
                continue
            return

    def end(self) -> None:
        """Say that nothing more will come."""
        self.put([_END])

    def close(self) -> None:
        """Stop taking records."""
        self._closed.set()

    def __iter__(self) -> Iterator[Any]:
        while True:
            for record in self._batches.get():
                if record is _END:
                    return
                yield record


class _Job(Protocol):
    def cancel(self) -> None: ...

    def wait_for_end(self, seconds: float) -> bool: ...

    def raise_failure(self) -> None: ...

    def micro_batches(self) -> list[Any]: ...


class CloseableIterator:
    """The records of a running job; closing it cancels the job."""

    def __init__(self, received: Received, job: _Job) -> None:
        self._received = received
        self._records: Iterator[Any] = iter(received)
        self._job = job
        self._closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        for record in self._records:
            return record
        if not self._closed:
            self._job.raise_failure()
        raise StopIteration

    def next(self) -> Any:
        """Return the next record."""
        return next(self)

    def get_micro_batches(self) -> list[Any]:
        """Return the job's newest published micro-batches, a `MicroBatchReport` each."""
        return self._job.micro_batches()

    def close(self) -> None:
        """Cancel the job if it still runs; there are no more records then."""
        self._closed = True
        self._records = iter(())
        self._received.close()
        self._job.cancel()
        self._job.wait_for_end(_PATIENCE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
