"""Collects a stream's records in the program."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Protocol, Self

_END = object()

_CLOSE_TIMEOUT_SECONDS = 60.0
"""How long closing waits for running micro-batches to clean up."""


class CollectedRecords:
    """A bounded queue of records from the publishing thread to the iterating one."""

    def __init__(self, most_batches: int = 64) -> None:
        self._batches: queue.Queue[Any] = queue.Queue(most_batches)
        self._closed = threading.Event()

    def put(self, records: list[Any]) -> None:
        """Add records; waits while the queue is full."""
        while not self._closed.is_set():
            try:
                self._batches.put(records, timeout=0.2)
            except queue.Full:
                continue
            return

    def end(self) -> None:
        """Mark the end of the records."""
        self.put([_END])

    def close(self) -> None:
        """Discard further records."""
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

    def __init__(self, received: CollectedRecords, job: _Job) -> None:
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
        """Cancel the job if it still runs; there are no more records after that."""
        self._closed = True
        self._records = iter(())
        self._received.close()
        self._job.cancel()
        self._job.wait_for_end(_CLOSE_TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
