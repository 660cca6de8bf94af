"""Asynchronous steps: the calls of many records run concurrently in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from penstock.datastream.async_functions import AsyncFunctionDescriptor
from penstock.task.failure import copy_if_mutable, fail
from penstock.task.time.timer_service import RecordTime

Push = Callable[[Any], None]

LARGEST_BATCH = 1 << 12
"""Records that are buffered before their calls start; bounds the memory of a task."""


class AsyncStep:
    """Buffers records, calls the function for some thousand at a time, and emits the results.

    `drain` processes the rest: no call is in flight at the end of a micro-batch.
    """

    def __init__(
        self, step: str, descriptor: AsyncFunctionDescriptor, out: Push, record_time: RecordTime
    ) -> None:
        self._step = step
        self._out = out
        self._record_time = record_time
        self._records: list[Any] = []
        self._times: list[int] = []
        self.count = 0
        """How many records it has drained."""
        self._function = descriptor.async_function
        self._loop = descriptor.loop
        millis = descriptor.timeout.to_milliseconds()
        self._seconds = millis / 1000 if millis > 0 else None
        self._capacity = descriptor.capacity
        self._keeps_order = descriptor.output_mode is AsyncFunctionDescriptor.OutputMode.ORDERED
        self._strategy = descriptor.async_retry_strategy
        predicate = self._strategy.get_retry_predicate()
        self._is_retryable_result = predicate.result_predicate()
        self._is_retryable = predicate.exception_predicate()

    def push(self, record: Any) -> None:
        """Buffer a record, as a copy if it could change."""
        self._records.append(copy_if_mutable(self._step, record))
        self._times.append(self._record_time.timestamp)
        if len(self._records) >= LARGEST_BATCH:
            self.drain()

    def drain(self) -> None:
        """Call the function for all buffered records, and emit their results."""
        records, self._records = self._records, []
        times, self._times = self._times, []
        if not records:
            return
        self.count += len(records)
        before = self._record_time.timestamp
        for index, results in self._call(records):
            self._record_time.timestamp = times[index]
            for result in results:
                self._out(result)
        self._record_time.timestamp = before

    def _call(self, records: list[Any]) -> list[tuple[int, list[Any]]]:
        """Return the results of each record with its index, in output order."""
        assert self._loop is not None, "the function is open"
        try:
            finished = self._loop.run_until_complete(self._all(records))
        except ExceptionGroup as failures:
            # The first failure is reported; it cancelled the calls of the other records.
            first = failures.exceptions[0]
            raise first from first.__cause__
        return sorted(finished, key=itemgetter(0)) if self._keeps_order else finished

    async def _all(self, records: list[Any]) -> list[tuple[int, list[Any]]]:
        finished: list[tuple[int, list[Any]]] = []
        left = iter(enumerate(records))

        async def work() -> None:
            for index, record in left:
                finished.append((index, await self._one(record)))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._capacity, len(records))):
                group.create_task(work())
        return finished

    async def _one(self, record: Any) -> list[Any]:
        try:
            results = await self._with_timeout(record)
            if not isinstance(results, Iterable):
                raise RuntimeError(self._not_a_list(results))
            return list(results)
        except (Exception, SystemExit) as error:
            fail(self._step, record, error)

    def _not_a_list(self, results: Any) -> str:
        """Return the message for a result that is no list; it begins as PyFlink's does."""
        problem = "cannot be none" if results is None else "should be of list type"
        name = type(self._function).__name__
        return (
            f"The result of AsyncFunction {problem}, and {results!r} was returned: change "
            f"async_invoke() or timeout() of class {name!r}"
        )

    async def _with_timeout(self, record: Any) -> Any:
        try:
            async with asyncio.timeout(self._seconds) as limit:
                return await self._tries(record)
        except TimeoutError:
            if not limit.expired():
                raise  # raised by the function itself
        return self._function.timeout(record)

    async def _tries(self, record: Any) -> Any:
        attempts = 1
        while True:
            try:
                results = await self._function.async_invoke(record)
                again = (
                    self._is_retryable_result is not None
                    and results is not None
                    and self._is_retryable_result(results)
                )
            except Exception as error:
                again = self._is_retryable is not None and self._is_retryable(error)
                if not again or not self._strategy.can_retry(attempts):
                    raise
            else:
                if not again or not self._strategy.can_retry(attempts):
                    return results
            await asyncio.sleep(self._strategy.get_backoff_time_millis(attempts) / 1000)
            attempts += 1
