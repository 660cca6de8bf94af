"""A step that waits for something outside: its calls run side by side in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from penstock.datastream.async_functions import AsyncFunctionDescriptor
from penstock.task.failure import StepFailed, copy_for_later, fail
from penstock.task.moment import Moment

Push = Callable[[Any], None]

LARGEST_BATCH = 1 << 12
"""Records that are kept before their calls are made; bounds what a task holds in memory."""


class AsyncStep:
    """Takes records, makes their calls some thousand at a time, and hands on the results.

    `drain` makes those that are left: at the end of a micro-batch no call is under way.
    """

    def __init__(
        self, step: str, descriptor: AsyncFunctionDescriptor, out: Push, moment: Moment
    ) -> None:
        self._step = step
        self._calls = _Calls(step, descriptor)
        self._out = out
        self._moment = moment
        self._waiting: list[Any] = []
        self._times: list[int] = []

    def push(self, record: Any) -> None:
        """Take a record, which waits and so must not change any more."""
        self._waiting.append(copy_for_later(self._step, record))
        self._times.append(self._moment.timestamp)
        if len(self._waiting) >= LARGEST_BATCH:
            self.drain()

    def drain(self) -> None:
        """Make the calls of all records that wait, and hand on their results."""
        records, self._waiting = self._waiting, []
        times, self._times = self._times, []
        if not records:
            return
        before = self._moment.timestamp
        for index, results in self._calls.make(records):
            self._moment.timestamp = times[index]
            for result in results:
                self._out(result)
        self._moment.timestamp = before


class _Calls:
    def __init__(self, step: str, descriptor: AsyncFunctionDescriptor) -> None:
        self._step = step
        self._function = descriptor.async_function
        self._loop = descriptor.loop
        millis = descriptor.timeout.to_milliseconds()
        self._seconds = millis / 1000 if millis > 0 else None
        self._capacity = descriptor.capacity
        self._keeps_order = descriptor.output_mode is AsyncFunctionDescriptor.OutputMode.ORDERED
        self._strategy = descriptor.async_retry_strategy
        predicate = self._strategy.get_retry_predicate()
        self._is_bad_result = predicate.result_predicate()
        self._is_worth_a_try = predicate.exception_predicate()

    def make(self, records: list[Any]) -> list[tuple[int, list[Any]]]:
        """Return the results of each record with its index, in the order they are to go on."""
        assert self._loop is not None, "the function is open"
        try:
            finished = self._loop.run_until_complete(self._all(records))
        except ExceptionGroup as failures:
            # One failure is enough; the calls of the others were cancelled with it.
            first = failures.exceptions[0]
            raise first from first.__cause__
        return sorted(finished, key=_index) if self._keeps_order else finished

    async def _all(self, records: list[Any]) -> list[tuple[int, list[Any]]]:
        finished: list[tuple[int, list[Any]]] = []
        left = iter(enumerate(records))

        async def take_one_after_the_other() -> None:
            for index, record in left:
                finished.append((index, await self._one(record)))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._capacity, len(records))):
                group.create_task(take_one_after_the_other())
        return finished

    async def _one(self, record: Any) -> list[Any]:
        try:
            return _as_list(await self._in_time(record))
        except StepFailed:
            raise
        except (Exception, SystemExit) as error:
            fail(self._step, record, error)

    async def _in_time(self, record: Any) -> Any:
        try:
            async with asyncio.timeout(self._seconds) as limit:
                return await self._tries(record)
        except TimeoutError:
            if not limit.expired():
                raise  # the function's own
        return self._function.timeout(record)

    async def _tries(self, record: Any) -> Any:
        attempts = 1
        while True:
            try:
                results = await self._function.async_invoke(record)
                again = self._is_bad_result is not None and self._is_bad_result(results)
            except Exception as error:
                again = self._is_worth_a_try is not None and self._is_worth_a_try(error)
                if not again or not self._strategy.can_retry(attempts):
                    raise
            else:
                if not again or not self._strategy.can_retry(attempts):
                    return results
            await asyncio.sleep(self._strategy.get_backoff_time_millis(attempts) / 1000)
            attempts += 1


def _as_list(results: Any) -> list[Any]:
    if not isinstance(results, Iterable):
        message = f"async_invoke() and timeout() must return a list; got {results!r}"
        raise TypeError(message)
    return list(results)


def _index(finished: tuple[int, list[Any]]) -> int:
    return finished[0]
