"""Results that come later."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["CompletableFuture"]

T = TypeVar("T")


class CompletableFuture(Generic[T]):
    """What a job client gives for questions that take time to answer."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def cancel(self) -> bool:
        """Give up waiting; tell whether that was still possible."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        """Tell whether it was given up."""
        return self._future.cancelled()

    def done(self) -> bool:
        """Tell whether there is a result, an error or nothing more to wait for."""
        return self._future.done()

    def result(self) -> T:
        """Wait for the result and return it, or raise the error that came instead."""
        return self._future.result()

    def exception(self) -> BaseException | None:
        """Return the error if one has come; never wait."""
        if not self._future.done() or self._future.cancelled():
            return None
        return self._future.exception()

    def __repr__(self) -> str:
        return f"CompletableFuture({self._future!r})"
