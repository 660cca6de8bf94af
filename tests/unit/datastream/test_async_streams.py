"""Async functions: many calls at once, in order or not, in time or not, tried again or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from penstock.common import Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    CheckpointListener,
    DataStream,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
)
from penstock.datastream.async_retry_predicates import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from penstock.errors import InvalidJobError, UserFunctionError
from penstock.task.operators import async_step
from tests.unit.support import collected, environment

LONG = Time.minutes(5)
CALLS: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


def numbers(count: int, parallelism: int = 1) -> DataStream:
    return environment(parallelism).from_collection(range(count), Types.LONG())


class LastFirst(AsyncFunction[int, int]):
    """Answers the records of a batch from the last to the first."""

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, runtime_context: RuntimeContext) -> None:
        self.answered = [asyncio.Event() for _ in range(self.count + 1)]
        self.answered[self.count].set()

    async def async_invoke(self, value: int) -> list[int]:
        await self.answered[value + 1].wait()
        self.answered[value].set()
        return [value]


def test_ordered_results_keep_the_order_of_their_records() -> None:
    assert collected(AsyncDataStream.ordered_wait(numbers(9), LastFirst(9), LONG)) == [*range(9)]


def test_unordered_results_come_in_the_order_of_their_answers() -> None:
    answers = AsyncDataStream.unordered_wait(numbers(9), LastFirst(9), LONG)
    assert collected(answers) == [*reversed(range(9))]


class Crowd(AsyncFunction[int, int]):
    """Tells how many calls are under way with its own."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.under_way = [0]

    async def async_invoke(self, value: int) -> list[int]:
        self.under_way[0] += 1
        for _ in range(5):
            await asyncio.sleep(0)
        seen = self.under_way[0]
        self.under_way[0] -= 1
        return [seen]


@pytest.mark.parametrize("capacity", [1, 3, 100])
def test_no_more_calls_are_under_way_than_the_capacity(capacity: int) -> None:
    counts = collected(AsyncDataStream.ordered_wait(numbers(50), Crowd(), LONG, capacity))
    assert max(counts) == min(capacity, 50)


def test_a_record_may_become_several_or_none() -> None:
    class Repeat(AsyncFunction[int, int]):
        async def async_invoke(self, value: int) -> Iterable[int]:
            return (value for _ in range(value))

    answers = AsyncDataStream.ordered_wait(numbers(4), Repeat(), LONG, 10, Types.LONG())
    assert collected(answers.rebalance().map(lambda n: n)) == [1, 2, 2, 3, 3, 3]


def test_results_go_to_side_outputs_too() -> None:
    odd = OutputTag("odd", Types.LONG())

    class Split(AsyncFunction[int, Any]):
        async def async_invoke(self, value: int) -> list[Any]:
            return [(odd, value)] if value % 2 else [value]

    answers = AsyncDataStream.ordered_wait(numbers(6), Split(), LONG)
    assert collected(answers.get_side_output(odd)) == [1, 3, 5]


class PlusOne(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0)
        return [value + 1]


def test_async_steps_in_one_chain_hand_everything_on() -> None:
    once = AsyncDataStream.unordered_wait(numbers(20), PlusOne(), LONG)
    twice = AsyncDataStream.ordered_wait(once.map(lambda n: 10 * n), PlusOne(), LONG)
    assert sorted(collected(twice)) == [10 * n + 1 for n in range(1, 21)]


def test_more_records_than_are_kept_are_called_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_step, "LARGEST_BATCH", 4)
    answers = AsyncDataStream.ordered_wait(numbers(10), Crowd(), LONG)
    assert collected(answers)[:4] == [4, 3, 2, 1]


def test_async_functions_work_on_the_values_of_a_keyed_stream() -> None:
    keyed = numbers(5, parallelism=2).key_by(lambda n: n % 2)
    answers = AsyncDataStream.unordered_wait(keyed, PlusOne(), LONG)
    assert sorted(collected(answers)) == [1, 2, 3, 4, 5]


def test_a_record_that_its_step_changes_later_is_called_with_what_it_was() -> None:
    def growing(value: int) -> Iterable[list[int]]:
        same: list[int] = []
        for n in range(3):
            same.append(n)
            yield same

    class Length(AsyncFunction[list[int], int]):
        async def async_invoke(self, value: list[int]) -> list[int]:
            return [len(value)]

    lists = numbers(1).flat_map(growing)
    assert collected(AsyncDataStream.ordered_wait(lists, Length(), LONG)) == [1, 2, 3]


class Silent(AsyncFunction[int, Any]):
    async def async_invoke(self, value: int) -> list[Any]:
        if value == 1:
            await asyncio.Event().wait()
        return [value]


class SilentButMinded(Silent):
    def timeout(self, value: int) -> list[Any]:
        return [("late", value)]


def test_a_call_that_takes_too_long_is_an_error_that_names_the_record() -> None:
    answers = AsyncDataStream.ordered_wait(numbers(3), Silent(), Time.milliseconds(20))
    with pytest.raises(UserFunctionError, match=r"async wait operator.* 1\b.*") as raised:
        collected(answers)
    assert "async_invoke() has timed out for 1" in str(raised.value)


def test_timeout_may_answer_instead() -> None:
    answers = AsyncDataStream.ordered_wait(numbers(3), SilentButMinded(), Time.milliseconds(20))
    assert collected(answers) == [0, ("late", 1), 2]


def test_a_timeout_of_the_functions_own_is_its_failure() -> None:
    class OwnTimeout(SilentButMinded):
        async def async_invoke(self, value: int) -> list[Any]:
            msg = "the server's"
            raise TimeoutError(msg)

    answers = AsyncDataStream.ordered_wait(numbers(1), OwnTimeout(), LONG)
    with pytest.raises(UserFunctionError, match="the server's"):
        collected(answers)


def test_without_a_timeout_a_call_may_take_its_time() -> None:
    answers = AsyncDataStream.ordered_wait(numbers(3), PlusOne(), Time.milliseconds(0))
    assert collected(answers) == [1, 2, 3]


def test_an_exception_is_an_error_that_names_the_record() -> None:
    class Division(AsyncFunction[int, int]):
        async def async_invoke(self, value: int) -> list[int]:
            await asyncio.sleep(0)
            return [1 // (value - 2)]

    answers = AsyncDataStream.unordered_wait(numbers(5), Division(), LONG)
    with pytest.raises(UserFunctionError, match=r"async wait operator.* 2:") as raised:
        collected(answers)
    assert "ZeroDivisionError" in str(raised.value)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "RuntimeError: The result of AsyncFunction cannot be none, .* of class 'Wrong'"),
        (7, "RuntimeError: The result of AsyncFunction should be of list type, .*'Wrong'"),
    ],
)
def test_what_is_no_list_is_pyflinks_error(result: Any, message: str) -> None:
    class Wrong(AsyncFunction[int, Any]):
        async def async_invoke(self, value: int) -> Any:
            return result

    with pytest.raises(UserFunctionError, match=message):
        collected(AsyncDataStream.ordered_wait(numbers(1), Wrong(), LONG))


def test_no_result_is_an_error_even_if_results_may_be_retried() -> None:
    class Wrong(AsyncFunction[int, Any]):
        async def async_invoke(self, value: int) -> Any:
            return None

    again = AsyncRetryStrategy.fixed_delay(3, 1, lambda result: result[0] > 1, None)
    answers = AsyncDataStream.unordered_wait_with_retry(numbers(1), Wrong(), LONG, again)
    with pytest.raises(UserFunctionError, match="AsyncFunction cannot be none"):
        collected(answers)


class Unwilling(AsyncFunction[int, Any]):
    """Gives nothing, then fails, then answers."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls: dict[int, int] = {}

    async def async_invoke(self, value: int) -> list[Any]:
        self.calls[value] = self.calls.get(value, 0) + 1
        if self.calls[value] == 1:
            return []
        if self.calls[value] == 2:
            msg = "not yet"
            raise ConnectionError(msg)
        return [(value, self.calls[value])]


def fixed(attempts: int, result: Any, exception: Any) -> AsyncRetryStrategy[Any]:
    return AsyncRetryStrategy.fixed_delay(attempts, 1, result, exception)


def growing(attempts: int, result: Any, exception: Any) -> AsyncRetryStrategy[Any]:
    return AsyncRetryStrategy.exponential_backoff(attempts, 1, 4, 2.0, result, exception)


@pytest.mark.parametrize("strategy", [fixed, growing], ids=["fixed", "growing"])
@pytest.mark.parametrize("waits", ["ordered_wait_with_retry", "unordered_wait_with_retry"])
def test_calls_are_tried_again(strategy: Callable[..., Any], waits: str) -> None:
    wait = getattr(AsyncDataStream, waits)
    again = strategy(5, empty_result_predicate, has_exception_predicate)
    assert sorted(collected(wait(numbers(3), Unwilling(), LONG, again))) == [(0, 3), (1, 3), (2, 3)]


def test_the_tries_come_to_an_end() -> None:
    once = fixed(1, empty_result_predicate, has_exception_predicate)
    with pytest.raises(UserFunctionError, match="not yet"):
        collected(AsyncDataStream.ordered_wait_with_retry(numbers(1), Unwilling(), LONG, once))


def test_only_what_the_predicate_says_is_tried_again() -> None:
    def is_timeout(error: Exception) -> bool:
        return exception_type_predicate(error, TimeoutError)

    again = fixed(5, empty_result_predicate, is_timeout)
    with pytest.raises(UserFunctionError, match="not yet"):
        collected(AsyncDataStream.ordered_wait_with_retry(numbers(1), Unwilling(), LONG, again))
    results = fixed(5, None, has_exception_predicate)
    stream = AsyncDataStream.ordered_wait_with_retry(numbers(1), Unwilling(), LONG, results)
    assert collected(stream) == []


def test_the_timeout_is_for_all_tries_of_a_record() -> None:
    class Never(SilentButMinded):
        async def async_invoke(self, value: int) -> list[Any]:
            msg = "never"
            raise ConnectionError(msg)

    forever = AsyncRetryStrategy.fixed_delay(10**9, 1, None, has_exception_predicate)
    answers = AsyncDataStream.ordered_wait_with_retry(
        numbers(1), Never(), Time.milliseconds(30), forever
    )
    assert collected(answers) == [("late", 0)]


def test_delays_grow_up_to_the_longest() -> None:
    strategy = AsyncRetryStrategy.exponential_backoff(9, 10, 60, 2.0, None, None)
    assert [strategy.get_backoff_time_millis(n) for n in (1, 2, 3, 4, 5, 1)] == [
        10,
        20,
        40,
        60,
        60,
        10,
    ]
    assert (strategy.can_retry(9), strategy.can_retry(10)) == (True, False)
    assert not AsyncRetryStrategy.no_restart().can_retry(1)
    with pytest.raises(InvalidJobError, match="max_attempts of a retry strategy must be above"):
        AsyncRetryStrategy.fixed_delay(0, 1, None, None)


class Client(AsyncFunction[int, int]):
    """Needs its own event loop before and behind its calls."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.asked: asyncio.Queue[int] = asyncio.Queue()
        CALLS.append("open")

    async def async_invoke(self, value: int) -> list[int]:
        await self.asked.put(value)
        return [await self.asked.get()]

    def close(self) -> None:
        assert not asyncio.get_event_loop().is_closed()
        CALLS.append("close")


def test_a_function_is_opened_and_closed_with_its_event_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert sorted(collected(AsyncDataStream.unordered_wait(numbers(5), Client(), LONG))) == [
        *range(5)
    ]
    assert CALLS == ["open", "close"]
    assert "changed its fields" not in caplog.text


class Plain(AsyncFunction[int, int]):
    def async_invoke(self, value: int) -> Any:
        return [value]


class Listening(PlusOne, CheckpointListener):
    pass


@pytest.mark.parametrize(
    ("function", "timeout", "capacity", "said"),
    [
        (Plain(), LONG, 1, "async_invoke.. of Plain must be declared with 'async def'"),
        (PlusOne, LONG, 1, "needs an instance of an AsyncFunction"),
        (len, LONG, 1, "needs an instance of an AsyncFunction"),
        (Listening(), LONG, 1, "has neither state nor checkpoints"),
        (PlusOne(), 5, 1, "the timeout must be a Time"),
        (PlusOne(), LONG, 0, "capacity must be a whole number of at least 1"),
    ],
    ids=["plain", "class", "callable", "listener", "timeout", "capacity"],
)
def test_what_cannot_work_is_rejected(
    function: Any, timeout: Any, capacity: int, said: str
) -> None:
    with pytest.raises(InvalidJobError, match=said):
        AsyncDataStream.ordered_wait(numbers(1), function, timeout, capacity)


def test_tries_need_a_strategy_and_a_timeout() -> None:
    retry: Any = AsyncDataStream.ordered_wait_with_retry
    with pytest.raises(InvalidJobError, match="needs an AsyncRetryStrategy; got None"):
        retry(numbers(1), PlusOne(), LONG, None)
    with pytest.raises(InvalidJobError, match="needs a timeout above zero"):
        retry(numbers(1), PlusOne(), Time.milliseconds(0), fixed(1, None, None))
    with pytest.raises(InvalidJobError, match="needs a DataStream"):
        retry([1], PlusOne(), LONG, fixed(1, None, None))


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value * 1000


class Stamped(ProcessFunction[int, Any]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp()


@pytest.mark.parametrize("dealt_out", [False, True], ids=["chained", "behind an exchange"])
def test_results_have_the_event_time_of_their_record(dealt_out: bool) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Seconds())
    timed = numbers(9).assign_timestamps_and_watermarks(strategy)
    answers = AsyncDataStream.unordered_wait(timed, LastFirst(9), LONG, 100, Types.LONG())
    stamped = (answers.rebalance() if dealt_out else answers).process(Stamped())
    assert sorted(collected(stamped)) == [(n, n * 1000) for n in range(9)]


def test_a_function_of_two_steps_has_one_instance_in_each() -> None:
    same = Client()
    once = AsyncDataStream.ordered_wait(numbers(5), same, LONG)
    assert collected(AsyncDataStream.ordered_wait(once, same, LONG)) == [*range(5)]
    assert sorted(CALLS) == ["close", "close", "open", "open"]
