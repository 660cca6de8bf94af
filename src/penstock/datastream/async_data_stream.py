"""Async functions on streams."""

from __future__ import annotations

import inspect
from typing import Any

from penstock.common.time import Time
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.async_functions import (
    AsyncFunction,
    AsyncFunctionDescriptor,
    AsyncRetryStrategy,
)
from penstock.datastream.async_retry_strategies import NO_RETRY_STRATEGY
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import CheckpointedFunction, CheckpointListener
from penstock.datastream.streams.step import at_least_one
from penstock.errors import InvalidJobError
from penstock.graph.transformation import OperatorKind

__all__ = ["AsyncDataStream"]

_Mode = AsyncFunctionDescriptor.OutputMode


class AsyncDataStream:
    """Applies an `AsyncFunction` to a stream.

    `timeout` is for one record including all retries, zero for none; `capacity` is the number of
    concurrent calls of a subtask.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Replace each record by the function's result, in the order of completion."""
        return AsyncDataStream.unordered_wait_with_retry(
            data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type
        )

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Do as `unordered_wait`, and retry calls according to the strategy."""
        settings = async_function, timeout, capacity, async_retry_strategy
        return _apply(data_stream, _descriptor(*settings, _Mode.UNORDERED), output_type)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Replace each record by the function's result, in the order of the records."""
        return AsyncDataStream.ordered_wait_with_retry(
            data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type
        )

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Do as `ordered_wait`, and retry calls according to the strategy."""
        settings = async_function, timeout, capacity, async_retry_strategy
        return _apply(data_stream, _descriptor(*settings, _Mode.ORDERED), output_type)


def _apply(
    stream: DataStream, descriptor: AsyncFunctionDescriptor, output_type: TypeInformation | None
) -> DataStream:
    if not isinstance(stream, DataStream):
        message = f"AsyncDataStream needs a DataStream; got {stream!r}"
        raise InvalidJobError(message)
    return stream._values()._then(
        OperatorKind.ASYNC, "async wait operator", descriptor, output_type
    )


def _descriptor(
    function: Any, timeout: Any, capacity: int, strategy: Any, mode: _Mode
) -> AsyncFunctionDescriptor:
    if isinstance(function, type) or not isinstance(function, AsyncFunction):
        message = f"AsyncDataStream needs an instance of an AsyncFunction; got {function!r}"
        raise InvalidJobError(message)
    name = type(function).__name__
    if not inspect.iscoroutinefunction(function.async_invoke):
        message = f"async_invoke() of {name} must be declared with 'async def'"
        raise InvalidJobError(message)
    if isinstance(function, (CheckpointedFunction, CheckpointListener)):
        message = (
            f"{name} is an AsyncFunction, which has neither state nor checkpoints: keep state in "
            "the step before or after it"
        )
        raise InvalidJobError(message)
    if not isinstance(timeout, Time):
        message = f"the timeout must be a Time, as Time.seconds(5); got {timeout!r}"
        raise InvalidJobError(message)
    if not isinstance(strategy, AsyncRetryStrategy):
        message = f"this needs an AsyncRetryStrategy; got {strategy!r}"
        raise InvalidJobError(message)
    if strategy is not NO_RETRY_STRATEGY and timeout.to_milliseconds() <= 0:
        message = "a retry strategy needs a timeout above zero"
        raise InvalidJobError(message)
    return AsyncFunctionDescriptor(
        function, timeout, at_least_one("capacity", capacity), strategy, mode
    )
