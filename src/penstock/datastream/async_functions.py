"""Functions that wait for something outside, many records at a time, and how they try again."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.common.time import Time
from penstock.datastream.runtime_context import Function, RuntimeContext

if TYPE_CHECKING:
    from penstock.datastream.async_retry_strategies import (
        ExponentialBackoffDelayRetryStrategy,
        FixedDelayRetryStrategy,
        NoRetryStrategy,
    )

__all__ = [
    "AsyncFunction",
    "AsyncFunctionDescriptor",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "ExceptionPredicate",
    "ResultPredicate",
]

IN = TypeVar("IN")
OUT = TypeVar("OUT")

ResultPredicate = Callable[[Any], bool] | None
ExceptionPredicate = Callable[[Exception], bool] | None


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Says which results and exceptions are worth another try."""

    @abstractmethod
    def result_predicate(self) -> ResultPredicate:
        """Return what answers true for a result to be asked for again, or None."""

    @abstractmethod
    def exception_predicate(self) -> ExceptionPredicate:
        """Return what answers true for an exception to be tried again, or None."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """Says how often and how soon a call is repeated."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Tell whether there is another try behind so many."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return how long to wait behind so many tries."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Return what is worth another try."""

    @staticmethod
    def no_restart() -> NoRetryStrategy:
        """Return the strategy that never tries again."""
        from penstock.datastream.async_retry_strategies import NO_RETRY_STRATEGY

        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate,
        exception_predicate: ExceptionPredicate,
    ) -> FixedDelayRetryStrategy:
        """Return the strategy that waits equally long before each of some further tries."""
        from penstock.datastream.async_retry_strategies import FixedDelayRetryStrategy

        return FixedDelayRetryStrategy(
            max_attempts, backoff_time_millis, result_predicate, exception_predicate
        )

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate,
        exception_predicate: ExceptionPredicate,
    ) -> ExponentialBackoffDelayRetryStrategy:
        """Return the strategy that waits longer before each of some further tries."""
        from penstock.datastream.async_retry_strategies import ExponentialBackoffDelayRetryStrategy

        return ExponentialBackoffDelayRetryStrategy(
            max_attempts,
            initial_delay,
            max_retry_delay,
            multiplier,
            result_predicate,
            exception_predicate,
        )


class AsyncFunction(Function, Generic[IN, OUT]):
    """Asks something outside about each record, many records at a time.

    All calls of a micro-batch have ended when it ends, so none is in flight at a checkpoint; a
    micro-batch that runs again makes its calls again. The event loop is the subtask's own, lives as
    long as the instance, and is the current one in `open` and `close`: a client may be made there.
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> Iterable[OUT]:
        """Return the records that take the place of this one, as a list."""

    def timeout(self, value: IN) -> Iterable[OUT]:
        """Return what stands for a record whose call took too long; by default that is an error."""
        message = f"async_invoke() has timed out for {value!r}"
        raise TimeoutError(message)


class AsyncFunctionDescriptor(Function):
    """An async function with all that was said about it, and its event loop while it is open."""

    class OutputMode(Enum):
        """Whether results keep the order of the records they come from."""

        ORDERED = 0
        UNORDERED = 1

    def __init__(
        self,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        capacity: int,
        async_retry_strategy: AsyncRetryStrategy[Any],
        output_mode: OutputMode,
    ) -> None:
        self.async_function = async_function
        self.timeout = timeout
        self.capacity = capacity
        self.async_retry_strategy = async_retry_strategy
        self.output_mode = output_mode
        self.loop: asyncio.AbstractEventLoop | None = None

    def open(self, runtime_context: RuntimeContext) -> None:
        """Make the event loop and open the function."""
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.async_function.open(runtime_context)

    def close(self) -> None:
        """Close the function and its event loop."""
        loop = self.loop
        if loop is None or loop.is_closed():
            return
        asyncio.set_event_loop(loop)
        try:
            self.async_function.close()
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
