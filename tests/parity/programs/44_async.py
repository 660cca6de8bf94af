"""Async functions: in order and not, again after a failure, and what comes at a timeout."""
import asyncio

from pyflink.common import Time, Types
from pyflink.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    StreamExecutionEnvironment,
    async_retry_predicates,
)


class Double(AsyncFunction):
    """The first takes longest."""

    async def async_invoke(self, value):
        await asyncio.sleep(0.2 / value)
        return [value * 2]


class Several(AsyncFunction):
    def open(self, runtime_context):
        self.prefix = "n"

    async def async_invoke(self, value):
        await asyncio.sleep(0.01)
        return [f"{self.prefix}{value}.{i}" for i in range(value - 1)]


class FailsTwice(AsyncFunction):
    def __init__(self):
        self.tries = {}

    async def async_invoke(self, value):
        self.tries[value] = self.tries.get(value, 0) + 1
        if self.tries[value] < 3:
            raise ValueError("not yet")
        return [f"{value} at try {self.tries[value]}"]


class EmptyAtFirst(AsyncFunction):
    def __init__(self):
        self.tries = {}

    async def async_invoke(self, value):
        self.tries[value] = self.tries.get(value, 0) + 1
        return [f"{value} at try {self.tries[value]}"] if self.tries[value] > value else []


class Stuck(AsyncFunction):
    async def async_invoke(self, value):
        if value % 2:
            await asyncio.sleep(60)
        return [f"{value} done"]

    def timeout(self, value):
        return [f"{value} given up"]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection([1, 2, 3, 4, 5], type_info=Types.INT())
second = Time.seconds(10)
AsyncDataStream.ordered_wait(numbers, Double(), second, 10, Types.INT()).print("ordered")
AsyncDataStream.unordered_wait(numbers, Double(), second, 2, Types.INT()).print("unordered")
AsyncDataStream.ordered_wait(numbers, Several(), second, 100, Types.STRING()).print("several")
AsyncDataStream.unordered_wait_with_retry(
    numbers,
    FailsTwice(),
    second,
    AsyncRetryStrategy.fixed_delay(
        5,
        10,
        result_predicate=None,
        exception_predicate=async_retry_predicates.has_exception_predicate,
    ),
    100,
    Types.STRING(),
).print("failing")
AsyncDataStream.ordered_wait_with_retry(
    numbers,
    EmptyAtFirst(),
    second,
    AsyncRetryStrategy.exponential_backoff(
        3,
        10,
        100,
        2.0,
        result_predicate=async_retry_predicates.empty_result_predicate,
        exception_predicate=None,
    ),
    100,
    Types.STRING(),
).print("empty")
AsyncDataStream.unordered_wait(numbers, Stuck(), Time.milliseconds(700), 100, Types.STRING()).print(
    "stuck"
)
env.execute("async")
