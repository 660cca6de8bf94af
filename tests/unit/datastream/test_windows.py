"""Windowed programs: what PyFlink's give, given here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from penstock.common import Duration, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    AggregateFunction,
    DataStream,
    OutputTag,
    ProcessWindowFunction,
    RuntimeExecutionMode,
    TimeWindow,
    WindowFunction,
)
from penstock.datastream.functions import ProcessAllWindowFunction
from penstock.datastream.streams.windowed_stream import WindowedStream
from penstock.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.errors import InvalidJobError, StepError
from penstock.graph.transformation import OperatorKind
from tests.unit.support import collected, environment, plan_of

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
WINDOW = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.INT()])


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        time: int = value[1]
        return time


IN_ORDER = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())


def timed(*pairs: tuple[str, int], parallelism: int = 1) -> DataStream:
    env = environment(parallelism)
    return env.from_collection(pairs, PAIR).assign_timestamps_and_watermarks(IN_ORDER)


def at(*times: int, parallelism: int = 1) -> DataStream:
    return timed(*(("hi", time) for time in times), parallelism=parallelism)


def by_name(stream: DataStream, assigner: Any) -> WindowedStream:
    return stream.key_by(lambda pair: pair[0], Types.STRING()).window(assigner)


def millis(milliseconds: int) -> Time:
    return Time.milliseconds(milliseconds)


class HowMany(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    def process(self, key: str, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        window = context.window()
        return [(key, window.start, window.end, len(list(elements)))]


class HowManyOfAll(ProcessAllWindowFunction[Any, Any, TimeWindow]):
    def process(self, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        return [(context.window().start, context.window().end, len(list(elements)))]


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        gap: int = element[1]
        return gap


class Total(WindowFunction[Any, Any, str, Any]):
    def apply(self, key: str, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, sum(pair[1] for pair in inputs))]


COUNTED: dict[str, tuple[Callable[[DataStream], WindowedStream], list[int], list[Any]]] = {
    "tumbling": (
        lambda s: by_name(s, TumblingEventTimeWindows.of(millis(5))),
        [1, 2, 3, 4, 5, 8, 9, 15],
        [(0, 5, 4), (5, 10, 3), (15, 20, 1)],
    ),
    "tumbling with an offset": (
        lambda s: by_name(s, TumblingEventTimeWindows.of(millis(5), millis(-2))),
        [1, 2, 3, 4, 5, 8],
        [(-2, 3, 2), (3, 8, 3), (8, 13, 1)],
    ),
    "sliding": (
        lambda s: by_name(s, SlidingEventTimeWindows.of(millis(5), millis(2))),
        [1, 2, 3, 4, 5, 8, 9, 15],
        [(-2, 3, 2), (0, 5, 4), (2, 7, 4), (4, 9, 3), (6, 11, 2), (8, 13, 2)]
        + [(12, 17, 1), (14, 19, 1)],
    ),
    "sessions": (
        lambda s: by_name(s, EventTimeSessionWindows.with_gap(millis(5))),
        [1, 2, 3, 4, 8, 9, 15],
        [(1, 14, 6), (15, 20, 1)],
    ),
    "sessions of a dynamic gap": (
        lambda s: by_name(s, EventTimeSessionWindows.with_dynamic_gap(Gap())),
        [1, 2, 3, 4, 9, 9, 15],
        [(1, 8, 4), (9, 30, 3)],
    ),
    "sessions that a late record joins": (
        lambda s: by_name(s, EventTimeSessionWindows.with_gap(millis(5))),
        [0, 8, 4],
        [(0, 13, 3)],
    ),
    "sessions that are purged": (
        lambda s: by_name(s, EventTimeSessionWindows.with_gap(millis(3))).trigger(
            PurgingTrigger.of(EventTimeTrigger.create())
        ),
        [1, 2, 3, 4, 8, 9, 15],
        [(1, 7, 4), (8, 12, 2), (15, 18, 1)],
    ),
}


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("case", COUNTED)
def test_windows_count_what_pyflink_counts(case: str, parallelism: int) -> None:
    make, times, expected = COUNTED[case]
    counted = make(at(*times, parallelism=parallelism)).process(HowMany(), WINDOW)
    assert sorted(collected(counted)) == sorted(("hi", *window) for window in expected)


@pytest.mark.parametrize("case", COUNTED)
def test_windows_count_the_same_in_batch_mode(case: str) -> None:
    make, times, expected = COUNTED[case]
    stream = at(*times)
    stream.get_execution_environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
    counted = make(stream).process(HowMany(), WINDOW)
    assert sorted(collected(counted)) == sorted(("hi", *window) for window in expected)


def test_count_windows_sum_what_pyflink_sums() -> None:
    pairs = [
        ("hi", 1),
        ("hello", 2),
        ("hi", 3),
        ("hello", 4),
        ("hi", 5),
        ("hello", 6),
    ]
    keyed = timed(*pairs, ("hello", 6)).key_by(lambda pair: pair[0])
    assert sorted(collected(keyed.count_window(3).apply(Total()))) == [("hello", 12), ("hi", 9)]
    keyed = timed(*pairs).key_by(lambda pair: pair[0])
    assert sorted(collected(keyed.count_window(2, 1).apply(Total()))) == [
        ("hello", 6),
        ("hello", 10),
        ("hi", 4),
        ("hi", 8),
    ]


AB = [("a", 1), ("a", 2), ("b", 3), ("a", 6), ("b", 8), ("b", 9), ("a", 15)]


class TellStart(ProcessWindowFunction[Any, str, str, TimeWindow]):
    def process(self, key: str, context: Any, elements: Iterable[Any]) -> Iterable[str]:
        yield f"{key} from {context.window().start}: {next(iter(elements))}"


def sessions_of_two() -> WindowedStream:
    return by_name(timed(*AB), EventTimeSessionWindows.with_gap(millis(2)))


def test_reduce_gives_the_reduced_record_or_what_a_function_makes_of_it() -> None:
    reduced = sessions_of_two().reduce(lambda a, b: (b[0], a[1] + b[1]), output_type=PAIR)
    assert sorted(collected(reduced)) == [("a", 3), ("a", 6), ("a", 15), ("b", 3), ("b", 17)]
    told = sessions_of_two().reduce(
        lambda a, b: (b[0], a[1] + b[1]), TellStart(), output_type=Types.STRING()
    )
    assert sorted(collected(told)) == [
        "a from 15: ('a', 15)",
        "a from 1: ('a', 3)",
        "a from 6: ('a', 6)",
        "b from 3: ('b', 3)",
        "b from 8: ('b', 17)",
    ]


class EvenAndOdd(AggregateFunction[Any, dict[int, int], int]):
    """Changes its accumulator in place, as many do."""

    def create_accumulator(self) -> dict[int, int]:
        return {0: 0, 1: 0}

    def add(self, value: Any, accumulator: dict[int, int]) -> dict[int, int]:
        accumulator[value[1] % 2] += 1
        return accumulator

    def get_result(self, accumulator: dict[int, int]) -> int:
        return accumulator[0] - accumulator[1]

    def merge(self, acc_a: dict[int, int], acc_b: dict[int, int]) -> dict[int, int]:
        return {n: acc_a[n] + acc_b[n] for n in (0, 1)}


@pytest.mark.parametrize("accumulator_type", [None, Types.MAP(Types.INT(), Types.INT())], ids=repr)
def test_aggregate_gives_the_result_of_its_accumulator(accumulator_type: Any) -> None:
    balance = sessions_of_two().aggregate(EvenAndOdd(), accumulator_type=accumulator_type)
    assert sorted(collected(balance)) == [-1, -1, 0, 0, 1]
    told = sessions_of_two().aggregate(
        EvenAndOdd(), TellStart(), accumulator_type=accumulator_type, output_type=Types.STRING()
    )
    assert "b from 8: 0" in collected(told)


def test_an_accumulator_may_be_a_row_of_types() -> None:
    class Sum(AggregateFunction[Any, Any, int]):
        def create_accumulator(self) -> Any:
            return (0,)

        def add(self, value: Any, accumulator: Any) -> Any:
            return (accumulator[0] + value[1],)

        def get_result(self, accumulator: Any) -> int:
            total: int = accumulator[0]
            return total

        def merge(self, acc_a: Any, acc_b: Any) -> Any:
            return (acc_a[0] + acc_b[0],)

    total = sessions_of_two().aggregate(Sum(), accumulator_type=[Types.INT()])
    assert sorted(collected(total)) == [3, 3, 6, 15, 17]


def test_window_all_sees_all_keys_in_one_subtask() -> None:
    stream = timed(*AB, parallelism=2)
    counted = stream.window_all(TumblingEventTimeWindows.of(millis(5))).process(HowManyOfAll())
    assert sorted(collected(counted)) == [(0, 5, 3), (5, 10, 3), (15, 20, 1)]
    sessions = timed(*AB).window_all(EventTimeSessionWindows.with_gap(millis(2)))
    assert collected(sessions.reduce(lambda a, b: (a[0], a[1] + b[1]))) == [
        ("a", 6),
        ("a", 23),
        ("a", 15),
    ]
    assert collected(timed(*AB).count_window_all(3).reduce(lambda a, b: max(a, b))) == [
        ("b", 3),
        ("b", 9),
    ]


def test_a_global_window_fires_by_its_trigger() -> None:
    stream = at(1, 1, 1, 1, 1, 1, 1)
    windows = by_name(stream, GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(2)))
    assert collected(windows.apply(Total())) == [("hi", 2)] * 3


def test_an_evictor_leaves_the_last_records() -> None:
    windows = by_name(at(1, 2, 3, 4), TumblingEventTimeWindows.of(millis(10)))
    assert collected(windows.evictor(CountEvictor.of(2)).apply(Total())) == [("hi", 7)]


def test_results_have_the_timestamp_of_their_window_in_downstream_windows() -> None:
    stream = at(1, 2, 6, 11, 12, 13)
    fives = by_name(stream, TumblingEventTimeWindows.of(millis(5))).process(HowMany(), WINDOW)
    busiest = fives.window_all(TumblingEventTimeWindows.of(millis(10))).reduce(
        lambda a, b: max(a, b, key=lambda window: window[3])
    )
    assert collected(busiest) == [("hi", 0, 5, 2), ("hi", 10, 15, 3)]


LATE = OutputTag("late", PAIR)


def test_no_record_is_lost_between_windows_and_the_late() -> None:
    times = [time + delay for time in range(0, 400, 4) for delay in (0, -90, 3)]
    env = environment(penstock__micro_batch__max_records="20")
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5))
    stream = env.from_collection([("hi", time) for time in times], PAIR)
    timed_stream = stream.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(SecondField())
    )
    windows = by_name(timed_stream, TumblingEventTimeWindows.of(millis(10)))
    counted = windows.side_output_late_data(LATE).process(HowMany(), WINDOW)
    late = counted.get_side_output(LATE)
    found = collected(counted.map(lambda w: w[3]).union(late.map(lambda pair: 1)))
    assert sum(found) == len(times)


def test_late_records_without_a_side_output_are_counted_and_no_error() -> None:
    windows = by_name(at(1, 2), TumblingEventTimeWindows.of(millis(10)))
    tagged = windows.side_output_late_data(LATE).process(HowMany(), WINDOW)
    assert collected(tagged) == [("hi", 0, 10, 2)]


def test_event_time_windows_need_timestamps() -> None:
    stream = environment().from_collection(AB, PAIR)
    windows = by_name(stream, TumblingEventTimeWindows.of(millis(10)))
    with pytest.raises(StepError, match="has no timestamp"):
        collected(windows.reduce(lambda a, b: a))


def test_a_window_step_is_named_after_its_assigner_in_the_plan() -> None:
    windows = by_name(at(1), TumblingEventTimeWindows.of(millis(10)))
    step = windows.reduce(lambda a, b: a).uid("per-ten")
    assert step.get_name() == "TumblingEventTimeWindows"
    with pytest.raises(InvalidJobError, match="window function must be"):
        windows.apply(HowMany())


def behind_spark(stream: DataStream) -> DataStream:
    return stream._then(OperatorKind.NATIVE, "Transform", None, PAIR)


def in_event_time(stream: DataStream) -> DataStream:
    return by_name(stream, TumblingEventTimeWindows.of(Time.seconds(1))).reduce(max)


def mixed(stream: DataStream) -> DataStream:
    return behind_spark(stream).filter(bool).union(stream).map(lambda pair: pair, PAIR)


@pytest.mark.parametrize("lose", [behind_spark, mixed])
def test_an_event_time_window_after_a_spark_step_is_rejected_when_it_is_built(
    lose: Callable[[DataStream], DataStream],
) -> None:
    stream = lose(at(1, 2))
    in_event_time(stream).print()
    with pytest.raises(
        InvalidJobError,
        match=r"'TumblingEventTimeWindows' uses event time.*step 'Transform'.*: put "
        r"assign_timestamps_and_watermarks\(\) between the two",
    ):
        plan_of(stream.get_execution_environment())


def test_event_time_is_assigned_again_after_a_spark_step() -> None:
    again = behind_spark(at(1, 2)).assign_timestamps_and_watermarks(IN_ORDER).filter(bool)
    in_event_time(again).print()
    env = again.get_execution_environment()
    assert plan_of(env).stages
    counted = behind_spark(at(1, 2)).key_by(lambda pair: pair[0]).count_window(2).reduce(max)
    counted.print()
    assert plan_of(counted.get_execution_environment()).stages
