"""The future of a job client."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["CompletableFuture"]

T = TypeVar("T")


class CompletableFuture(Generic[T]):
    """The result of a request to a running job."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def cancel(self) -> bool:
        """Cancel the request; return whether that was still possible."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        """Tell whether it was cancelled."""
        return self._future.cancelled()

    def done(self) -> bool:
        """Tell whether there is a result or an error, or it was cancelled."""
        return self._future.done()

    def result(self) -> T:
        """Wait for the result and return it, or raise the error."""
        return self._future.result()

    def exception(self) -> BaseException | None:
        """Return the error, if there is one already; does not wait."""
        if not self._future.done() or self._future.cancelled():
            return None
        return self._future.exception()

    def __repr__(self) -> str:
        return f"CompletableFuture({self._future!r})"
