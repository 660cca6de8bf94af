"""Triggers, evictors, count windows and window functions, one rule at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from penstock.common import Row, Time, Types
from penstock.common.event_time import NO_TIMESTAMP
from penstock.datastream import DataStream, OutputTag
from penstock.datastream.functions import (
    AggregateFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
)
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.datastream.streams.windowed_stream import WindowedStream
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    DeltaFunction,
    DeltaTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.errors import InvalidJobError
from penstock.task.failure import StepFailed
from tests.unit.support import environment
from tests.unit.task.window.harness import Event, Windows, operation_of

END = 2**63 - 1
TEN = TumblingEventTimeWindows.of(Time.milliseconds(10))


def stream() -> DataStream:
    return environment().from_collection([1], Types.LONG())


def keyed(assigner: Any) -> WindowedStream:
    return stream().key_by(lambda v: v).window(assigner)


class Lists(ProcessWindowFunction[int, Any, str, Any]):
    """Gives all that is in a window, in order."""

    def process(self, key: str, context: Any, elements: Iterable[int]) -> Any:
        yield key, list(elements)


def lists(windows: WindowedStream) -> Windows:
    return Windows(operation_of(windows.process(Lists())))


def values(outs: Any) -> list[Any]:
    return [out.value for out in outs]


def events(*times: int, key: str = "a") -> list[Event]:
    """Records of one key whose values are their times."""
    return [Event(key, time, time) for time in times]


def test_count_windows_fire_when_full_and_leave_the_rest() -> None:
    windows = lists(stream().key_by(lambda v: v).count_window(3))
    assert values(windows.batch(events(1, 2))) == []
    windows.crash()
    assert values(windows.batch([*events(3, 4, 5, 6, 7), *events(8, key="b")])) == [
        ("a", [1, 2, 3]),
        ("a", [4, 5, 6]),
    ]
    assert values(windows.batch([], END)) == [], "what is not full at the end is never given"


def test_sliding_count_windows_begin_at_every_slide() -> None:
    windows = lists(stream().key_by(lambda v: v).count_window(3, 2))
    assert values(windows.batch(events(*range(1, 9)))) == [
        ("a", [1, 2, 3]),
        ("a", [3, 4, 5]),
        ("a", [5, 6, 7]),
    ]


class Noting(ProcessWindowFunction[int, Any, str, Any]):
    """Keeps state per window, and takes it away with the window."""

    NOTE = ValueStateDescriptor("note", Types.LONG())

    def process(self, key: str, context: Any, elements: Iterable[int]) -> Any:
        note = context.window_state().get_state(self.NOTE)
        note.update(context.window().id)
        yield list(elements)

    def clear(self, context: Any) -> None:
        context.window_state().get_state(self.NOTE).clear()


COUNTED: dict[str, Callable[[], DataStream]] = {
    "process": lambda: stream().key_by(lambda v: v).count_window(3).process(Noting()),
    "reduce": lambda: stream().key_by(lambda v: v).count_window(3).reduce(lambda a, b: a + b),
    "sliding": lambda: stream().key_by(lambda v: v).count_window(3, 2).process(Noting()),
    "with gaps": lambda: stream().key_by(lambda v: v).count_window(2, 3).process(Noting()),
    "evicted": lambda: (
        stream().key_by(lambda v: v).count_window(3).evictor(CountEvictor.of(2)).process(Noting())
    ),
    "all": lambda: stream().count_window_all(3).process(AllLists()),
    "all, sliding": lambda: stream().count_window_all(3, 1).reduce(lambda a, b: a + b),
}


@pytest.mark.parametrize("kind", COUNTED)
def test_a_count_window_that_has_fired_leaves_no_state(kind: str) -> None:
    windows = Windows(operation_of(COUNTED[kind]()))
    fired = 0
    for number in range(0, 300, 10):
        fired += len(windows.batch(events(*range(number, number + 10))))
        # The number of records so far, and at most two windows that are not full, each with its
        # own count.
        assert windows.entries() <= 5
    assert fired >= 99


def test_a_count_window_with_a_custom_trigger_is_kept() -> None:
    triggered = stream().key_by(lambda v: v).count_window(4).trigger(CountTrigger.of(2))
    assert values(lists(triggered).batch(events(1, 2, 3, 4, 5, 6))) == [
        ("a", [1, 2]),
        ("a", [1, 2, 3, 4]),
        ("a", [5, 6]),
    ]


def test_a_global_window_never_fires_by_itself_and_purging_empties_it() -> None:
    assert values(lists(keyed(GlobalWindows.create())).batch(events(1, 2, 3), END)) == []
    fires = keyed(GlobalWindows.create()).trigger(CountTrigger.of(2))
    assert values(lists(fires).batch(events(1, 2, 3, 4))) == [("a", [1, 2]), ("a", [1, 2, 3, 4])]
    purges = keyed(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(2)))
    assert values(lists(purges).batch(events(1, 2, 3, 4))) == [("a", [1, 2]), ("a", [3, 4])]


def test_a_count_trigger_counts_across_the_sessions_that_merge() -> None:
    sessions = EventTimeSessionWindows.with_gap(Time.milliseconds(10))
    windows = lists(keyed(sessions).trigger(CountTrigger.of(3)))
    assert values(windows.batch(events(0, 18))) == []
    assert values(windows.batch(events(9))) == [("a", [0, 18, 9])]


def test_a_continuous_trigger_fires_at_every_interval_and_at_the_end() -> None:
    trigger = ContinuousEventTimeTrigger.of(Time.milliseconds(4))
    windows = lists(keyed(TEN).trigger(trigger))
    assert values(windows.batch(events(1, 2), 3)) == []
    assert values(windows.batch(events(6), 4)) == [("a", [1, 2, 6])]
    windows.crash()
    assert values(windows.batch([], 9)) == [("a", [1, 2, 6])] * 2
    assert windows.entries() == 0


def test_processing_time_windows_fire_when_their_time_is_over() -> None:
    assigner = TumblingProcessingTimeWindows.of(Time.milliseconds(10), Time.milliseconds(5))
    windows = lists(keyed(assigner))
    windows.now = 7
    assert values(windows.batch(events(1, 2))) == []
    windows.now = 13
    assert values(windows.batch(events(3))) == []
    windows.crash()
    windows.now = 20
    assert values(windows.batch(events(4))) == [("a", [1, 2, 3])]
    windows.now = 24
    assert values(windows.batch([])) == [("a", [4])]
    assert windows.entries() == 0


def test_sliding_processing_time_windows_overlap() -> None:
    assigner = SlidingProcessingTimeWindows.of(Time.milliseconds(10), Time.milliseconds(5))
    windows = lists(keyed(assigner))
    windows.now = 7
    windows.batch(events(1))
    windows.now = 30
    assert values(windows.batch([])) == [("a", [1])] * 2


def test_processing_time_sessions_end_after_a_gap() -> None:
    windows = lists(keyed(ProcessingTimeSessionWindows.with_gap(Time.milliseconds(10))))
    for windows.now in (0, 8, 16):
        assert values(windows.batch(events(windows.now))) == []
        windows.crash()
    windows.now = 26
    assert values(windows.batch(events(26))) == [("a", [0, 8, 16])]
    windows.now = 100
    assert values(windows.batch([])) == [("a", [26])]
    assert windows.entries() == 0


def test_a_continuous_processing_time_trigger_fires_between_and_at_the_end() -> None:
    trigger = ContinuousProcessingTimeTrigger.of(Time.milliseconds(4))
    assigner = TumblingProcessingTimeWindows.of(Time.milliseconds(10))
    windows = lists(keyed(assigner).trigger(trigger))
    windows.batch(events(1))
    windows.now = 5
    assert values(windows.batch(events(2))) == [("a", [1])]
    windows.now = 20
    assert values(windows.batch([])) == [("a", [1, 2])] * 2
    assert windows.entries() == 0


class Distance(DeltaFunction[int]):
    def get_delta(self, old_data_point: int, new_data_point: int) -> float:
        return abs(new_data_point - old_data_point)


def test_a_delta_trigger_fires_when_a_record_is_far_from_the_one_that_fired() -> None:
    trigger = DeltaTrigger.of(5, Distance(), Types.LONG())
    windows = lists(keyed(GlobalWindows.create()).trigger(trigger))
    assert values(windows.batch(events(1, 4, 6))) == []
    windows.crash()
    assert values(windows.batch(events(7, 9))) == [("a", [1, 4, 6, 7])]


@pytest.mark.parametrize(
    ("evictor", "left"),
    [
        (CountEvictor.of(2), [7, 9]),
        (TimeEvictor.of(Time.milliseconds(3)), [7, 9]),
        (DeltaEvictor.of(5, Distance()), [5, 7, 9]),
    ],
    ids=["count", "time", "delta"],
)
def test_an_evictor_leaves_some_records_to_the_function(evictor: Any, left: list[int]) -> None:
    windows = lists(keyed(TEN).evictor(evictor))
    windows.batch(events(1, 3, 5))
    windows.crash()
    assert values(windows.batch(events(7, 9), 9)) == [("a", left)]
    assert windows.entries() == 0


def test_records_evicted_after_the_function_are_removed() -> None:
    global_windows = keyed(GlobalWindows.create()).trigger(CountTrigger.of(2))
    windows = lists(global_windows.evictor(CountEvictor.of(1, True)))
    assert values(windows.batch(events(1, 2))) == [("a", [1, 2])]
    windows.crash()
    assert values(windows.batch(events(3, 4))) == [("a", [2, 3, 4])]


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def test_reduce_and_aggregate_apply_to_what_an_evictor_leaves() -> None:
    evicted = keyed(TEN).evictor(CountEvictor.of(2))
    mean = Windows(operation_of(evicted.aggregate(Mean())))
    assert values(mean.batch(events(1, 2, 5), 9)) == [3.5]
    total = Windows(operation_of(evicted.reduce(lambda a, b: a + b)))
    assert values(total.batch(events(1, 2, 5), 9)) == [7]


def test_without_a_window_function_the_aggregated_value_is_the_result() -> None:
    mean = Windows(operation_of(keyed(TEN).aggregate(Mean())))
    outs = mean.batch(events(1, 2, 6), 9)
    assert [(out.time, out.value) for out in outs] == [(9, 3.0)]
    assert mean.was_grouped


class Remembering(ProcessWindowFunction[int, Any, str, TimeWindow]):
    """Counts firings per window and windows per key."""

    FIRINGS = ValueStateDescriptor("n", Types.LONG())
    WINDOWS = ListStateDescriptor("n", Types.LONG())

    def process(self, key: str, context: Any, elements: Iterable[int]) -> Any:
        firings = context.window_state().get_state(self.FIRINGS)
        seen = context.global_state().get_list_state(self.WINDOWS)
        firings.update((firings.value() or 0) + 1)
        seen.add(context.window().start)
        yield firings.value(), list(seen.get()), context.current_watermark(), sum(elements)

    def clear(self, context: Any) -> None:
        context.window_state().get_state(self.FIRINGS).clear()


def test_state_per_window_ends_with_the_window_and_state_per_key_stays() -> None:
    late = keyed(TEN).allowed_lateness(10)
    windows = Windows(operation_of(late.process(Remembering())))
    assert values(windows.batch(events(1, 11), 12)) == [(1, [0], 12, 1)]
    windows.crash()
    assert values(windows.batch(events(2, 12))) == [(2, [0, 0], 12, 3)]
    assert values(windows.batch([], 100)) == [(1, [0, 0, 10], 100, 23)]
    assert windows.entries() == 1, "the list of the key"


def test_state_per_window_is_refused_where_windows_merge() -> None:
    sessions = keyed(EventTimeSessionWindows.with_gap(Time.milliseconds(10)))
    windows = Windows(operation_of(sessions.process(Remembering())))
    with pytest.raises(StepFailed, match=r"windows that merge.*use global_state\(\)") as raised:
        windows.batch(events(1), END)
    assert "in TimeWindow(start=1, end=11) of key 'a'" in str(raised.value)


class AllLists(ProcessAllWindowFunction[int, Any, Any]):
    def process(self, context: Any, elements: Iterable[int]) -> Any:
        yield context.window(), list(elements)


def test_window_all_has_no_keys() -> None:
    windows = Windows(operation_of(stream().window_all(TEN).process(AllLists())))
    assert values(windows.batch(events(1, 2, key="x"), 9)) == [(TimeWindow(0, 10), [1, 2])]


class EveryOther(Trigger[int, Any]):
    """A trigger of a program's own, with state and a timer."""

    SEEN = ValueStateDescriptor("count", Types.LONG())

    def on_element(
        self, element: int, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        seen = ctx.get_partitioned_state(self.SEEN)
        seen.update((seen.value() or 0) + 1)
        ctx.register_event_time_timer(timestamp + 100)
        return TriggerResult.FIRE_AND_PURGE if seen.value() % 2 == 0 else TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        raise NotImplementedError

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self.SEEN).clear()


def test_a_custom_trigger_uses_its_state_and_timers() -> None:
    windows = lists(keyed(GlobalWindows.create()).trigger(EveryOther()))
    assert values(windows.batch(events(1, 2, 3), 100)) == [("a", [1, 2])]
    windows.crash()
    assert values(windows.batch([], 101)) == [("a", [3])]


def test_late_records_are_counted_if_they_have_no_side_output() -> None:
    windows = lists(keyed(TEN))
    windows.batch([], 50)
    assert values(windows.batch(events(1, 60))) == []
    tagged = keyed(TEN).side_output_late_data(OutputTag("late", Types.LONG()))
    windows = lists(tagged)
    windows.batch([], 50)
    (out,) = windows.batch(events(1, 60))
    assert (out.time, out.value) == (1, (OutputTag("late", Types.LONG()), 1))


def test_a_record_without_a_time_is_refused_in_event_time() -> None:
    for windows in (lists(keyed(TEN)), Windows(operation_of(keyed(TEN).aggregate(Mean())))):
        with pytest.raises(StepFailed, match="has no timestamp"):
            windows.batch([Event("a", 1, 1), Event("a", NO_TIMESTAMP, 7)])


class Failing(ReduceFunction[int]):
    def reduce(self, value1: int, value2: int) -> int:
        if value2 == 3:
            message = "three"
            raise ValueError(message)
        return value1 + value2


@pytest.mark.parametrize("group", [True, False], ids=["grouped", "one by one"])
def test_a_failing_reduce_names_the_record(group: bool) -> None:
    windows = Windows(operation_of(keyed(TEN).reduce(Failing())), group)
    with pytest.raises(StepFailed) as raised:
        windows.batch(events(1, 2, 3, 4))
    assert "on record 3" in str(raised.value)


NO_TRIGGER: Any = 5

BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "an assigner that is a class": (
        lambda: keyed(GlobalWindows),
        r"did you mean GlobalWindows\(\)",
    ),
    "no trigger": (lambda: keyed(TEN).trigger(NO_TRIGGER), "the trigger must be a Trigger; got 5"),
    "no window function": (lambda: keyed(TEN).process(Mean()), "must be a ProcessWindowFunction"),
    "a keyed function for all": (lambda: stream().window_all(TEN).process(Lists()), "ProcessAll"),
    "negative lateness": (lambda: keyed(TEN).allowed_lateness(-1), "0 or more; got -1"),
    "no gap": (lambda: EventTimeSessionWindows(0), "must satisfy 0 < gap; got gap=0"),
    "an offset of a whole size": (
        lambda: TumblingEventTimeWindows.of(Time.seconds(1), Time.seconds(1)),
        r"TumblingEventTimeWindows must satisfy abs\(offset\) < size; got size=1000, offset=1000",
    ),
    "a trigger that cannot merge": (
        lambda: keyed(EventTimeSessionWindows(5)).trigger(EveryOther()).process(Lists()),
        r"EveryOther cannot be used with EventTimeSessionWindows, whose windows are merged",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_invalid_windows_are_refused_when_the_program_is_built(bad: str) -> None:
    make, message = BAD[bad]
    with pytest.raises(InvalidJobError, match=message):
        make()


def test_types_and_names_are_those_of_pyflink() -> None:
    row = Types.ROW([Types.STRING(), Types.LONG()])
    source = environment().from_collection([Row("a", 1)], row)
    windows = source.key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(Time.seconds(5)))
    reduced = windows.reduce(lambda a, b: a)
    assert reduced.get_name() == "TumblingEventTimeWindows"
    assert reduced.get_type() == row
    step = reduced._transformation
    assert step.description == (
        "Window(TumblingEventTimeWindows(5000, 0), EventTimeTrigger, function)"
    )
    processed = windows.process(Lists())
    assert processed.get_type() == Types.PICKLED_BYTE_ARRAY()
    assert windows.process(Lists(), Types.STRING()).get_type() == Types.STRING()
    everything = source.window_all(TEN).process(AllLists())._transformation
    assert (everything.parallelism, everything.max_parallelism) == (1, 1)
    assert everything.description == (
        "AllWindow(TumblingEventTimeWindows(10, 0), EventTimeTrigger, AllLists)"
    )
