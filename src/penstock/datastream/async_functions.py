"""Asynchronous functions and their retry strategies."""

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
    """Decides which results and exceptions are retried."""

    @abstractmethod
    def result_predicate(self) -> ResultPredicate:
        """Return a predicate that is true for results to retry, or None."""

    @abstractmethod
    def exception_predicate(self) -> ExceptionPredicate:
        """Return a predicate that is true for exceptions to retry, or None."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """Decides how often and how soon a call is retried."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Tell whether there is another attempt after this number of attempts."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the delay after this number of attempts."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Return the predicate of results and exceptions to retry."""

    @staticmethod
    def no_restart() -> NoRetryStrategy:
        """Create a strategy without retries."""
        from penstock.datastream.async_retry_strategies import NO_RETRY_STRATEGY

        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate,
        exception_predicate: ExceptionPredicate,
    ) -> FixedDelayRetryStrategy:
        """Create a strategy with a fixed delay between attempts."""
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
        """Create a strategy with an exponential backoff between attempts."""
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
    """Makes an asynchronous call for each record, many of them concurrently.

    All calls of a micro-batch complete before it ends, so none is in flight at a checkpoint; a
    micro-batch that is retried repeats its calls. The subtask has an event loop that exists as long
    as the instance, and is the current one in `open` and `close`: create clients there.
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> Iterable[OUT]:
        """Return the records that replace this one, as a list."""

    def timeout(self, value: IN) -> Iterable[OUT]:
        """Return the result for a record whose call timed out; by default this is an error."""
        message = f"async_invoke() has timed out for {value!r}"
        raise TimeoutError(message)


class AsyncFunctionDescriptor(Function):
    """An async function with its settings, and its event loop while it is open."""

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
        """Create the event loop and open the function."""
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
