"""Windows give what the model says, whatever order, lateness, cuts and crashes come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Time, Types
from penstock.datastream import OutputTag
from penstock.datastream.functions import AggregateFunction, ProcessWindowFunction, WindowFunction
from penstock.datastream.streams.windowed_stream import WindowedStream
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    CountWindow,
    EventTimeSessionWindows,
    EventTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from penstock.datastream.window.operation import WindowOperation
from tests.unit.support import environment
from tests.unit.task.window.harness import Event, Windows, operation_of, split
from tests.unit.task.window.model import (
    ClockModel,
    ContinuousModel,
    CountModel,
    Fired,
    Output,
    SessionModel,
    SlicedModel,
)

LATE = OutputTag("late", Types.LONG())
END = 2**63 - 1


class Sorted(AggregateFunction[int, list[int], tuple[int, ...]]):
    """Collects all values: what is lost or there twice shows."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        return [*accumulator, value]

    def get_result(self, accumulator: list[int]) -> tuple[int, ...]:
        return tuple(sorted(accumulator))

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return [*acc_a, *acc_b]


def ends(window: Any) -> tuple[int, int]:
    if isinstance(window, CountWindow):
        return window.id, window.id
    return window.start, window.end


class Tell(WindowFunction[Any, Fired, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        (values,) = inputs
        yield key, *ends(window), values


class TellAll(ProcessWindowFunction[int, Fired, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, *ends(context.window()), tuple(sorted(elements))


class GapOfValue(SessionWindowTimeGapExtractor):
    def extract(self, element: int) -> int:
        return 1 + element % 9


def windowed(assigner: WindowAssigner[Any, Any], lateness: int) -> WindowedStream:
    stream = environment().from_collection([1], Types.LONG()).key_by(lambda v: v)
    late = stream.window(assigner).allowed_lateness(lateness)
    return late.side_output_late_data(LATE)


def aggregated(windows: WindowedStream) -> WindowOperation:
    return operation_of(windows.aggregate(Sorted(), Tell(), Types.LIST(Types.LONG())))


def processed(windows: WindowedStream) -> WindowOperation:
    return operation_of(windows.process(TellAll()))


WAYS: dict[str, tuple[Callable[[WindowedStream], WindowOperation], bool]] = {
    "grouped": (aggregated, True),
    "one by one": (aggregated, False),
    "all records kept": (processed, False),
}


@dataclass(frozen=True)
class Case:
    """Micro-batches, each with the watermark after it and the fate of its task."""

    batches: list[tuple[list[Event], int, str]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Records around an advancing time, some of them very late, divided at random."""
    batches, watermark, number = [], -30, 0
    for _ in range(draw(st.integers(1, 6))):
        events = []
        for _ in range(draw(st.integers(0, 7))):
            time = watermark + draw(st.integers(-25, 30))
            events.append(Event(draw(st.sampled_from("ab")), time, number))
            number += 1
        watermark += draw(st.integers(0, 25))
        befalls = draw(st.sampled_from(["", "", "crash", "lost try"]))
        batches.append((events, watermark, befalls))
    return Case([*batches, ([], END, "")])


def run(
    windows: Windows, batch: Callable[[list[Event], int], Output], case: Case, grouped: bool
) -> None:
    for events, watermark, befalls in case.batches:
        if befalls == "crash":
            windows.crash()
        if befalls == "lost try":
            windows.batch(events, watermark, publish=False)
        expected = batch(events, watermark)
        outs = windows.batch(events, watermark)
        assert windows.was_grouped is grouped
        assert all(o.time == o.value[2] - 1 for o in outs if len(o.value) == 4)
        fired, late = split(outs)
        assert late == expected.late
        # Late results come in the order of their records; of timers only time is in order.
        assert fired[: len(expected.at_once)] == expected.at_once
        after = fired[len(expected.at_once) :]
        assert sorted(after) == sorted(expected.after)
        assert [f[2] for f in after] == sorted(f[2] for f in after)
    assert windows.entries() == 0


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=60, deadline=None)
@given(
    case=cases(),
    slide=st.integers(1, 8),
    more=st.integers(0, 12),
    lateness=st.sampled_from([0, 3, 15]),
    offset=st.integers(-7, 7),
)
def test_sliding_windows_match_the_model(
    way: str, case: Case, slide: int, more: int, lateness: int, offset: int
) -> None:
    size, offset = slide + more, offset % slide
    make, group = WAYS[way]
    assigner = SlidingEventTimeWindows(size, slide, offset)
    windows = Windows(make(windowed(assigner, lateness)), group)
    run(windows, SlicedModel(size, slide, offset, lateness).batch, case, group)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=60, deadline=None)
@given(
    case=cases(),
    size=st.integers(1, 20),
    lateness=st.sampled_from([0, 3, 15]),
    offset=st.integers(0, 7),
)
def test_tumbling_windows_match_the_model(
    way: str, case: Case, size: int, lateness: int, offset: int
) -> None:
    make, group = WAYS[way]
    assigner = TumblingEventTimeWindows(size, offset % size)
    windows = Windows(make(windowed(assigner, lateness)), group)
    run(windows, SlicedModel(size, size, offset % size, lateness).batch, case, group)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=100, deadline=None)
@given(case=cases(), gap=st.integers(1, 12), lateness=st.sampled_from([0, 3, 15]))
def test_sessions_match_the_model(way: str, case: Case, gap: int, lateness: int) -> None:
    make, group = WAYS[way]
    windows = Windows(make(windowed(EventTimeSessionWindows(gap), lateness)), group)
    run(windows, SessionModel(lambda event: gap, lateness).batch, case, group)


@settings(max_examples=100, deadline=None)
@given(case=cases(), lateness=st.sampled_from([0, 3, 15]))
def test_sessions_with_dynamic_gaps_match_the_model(case: Case, lateness: int) -> None:
    assigner = EventTimeSessionWindows.with_dynamic_gap(GapOfValue())
    windows = Windows(aggregated(windowed(assigner, lateness)))
    model = SessionModel(lambda event: 1 + event.value % 9, lateness)
    run(windows, model.batch, case, grouped=False)


@settings(max_examples=60, deadline=None)
@given(case=cases(), size=st.integers(1, 20), lateness=st.sampled_from([0, 15]))
def test_each_value_is_in_one_result_where_windows_are_purged(
    case: Case, size: int, lateness: int
) -> None:
    stream = windowed(TumblingEventTimeWindows.of(Time.milliseconds(size)), lateness)
    windows = Windows(aggregated(stream.trigger(PurgingTrigger.of(EventTimeTrigger()))))
    seen: list[int] = []
    for events, watermark, befalls in case.batches:
        if befalls:
            windows.crash()
        fired, late = split(windows.batch(events, watermark))
        seen += [*late, *(value for f in fired for value in f[3])]
    assert sorted(seen) == sorted(e.value for events, _, _ in case.batches for e in events)
    assert windows.entries() == 0


KEEPING = {"folded": aggregated, "all records kept": processed}


def befall(windows: Windows, events: list[Event], befalls: str) -> None:
    if befalls == "crash":
        windows.crash()
    if befalls == "lost try":
        windows.batch(events, publish=False)


@pytest.mark.parametrize("kept", KEEPING)
@settings(max_examples=60, deadline=None)
@given(case=cases(), size=st.integers(1, 6), slide=st.integers(0, 8))
def test_count_windows_match_the_model(kept: str, case: Case, size: int, slide: int) -> None:
    assigner: WindowAssigner[Any, Any] = CountTumblingWindowAssigner(size)
    if slide:
        assigner = CountSlidingWindowAssigner(size, slide)
    windows, model = Windows(KEEPING[kept](windowed(assigner, 0))), CountModel(size, slide or size)
    keys = set()
    for events, _, befalls in case.batches:
        befall(windows, events, befalls)
        keys |= {event.key for event in events}
        assert [out.value for out in windows.batch(events)] == model.batch(events)
        # How many records a key had; what a window holds, and how many that are.
        assert windows.entries() == len(keys) + 2 * model.unfinished()


@pytest.mark.parametrize("kept", KEEPING)
@settings(max_examples=60, deadline=None)
@given(
    case=cases(),
    slide=st.integers(1, 8),
    more=st.sampled_from([0, 0, 1, 5, 12]),
    offset=st.integers(0, 7),
)
def test_processing_time_windows_match_the_model(
    kept: str, case: Case, slide: int, more: int, offset: int
) -> None:
    size, offset = slide + more, offset % slide
    assigner: WindowAssigner[Any, Any] = TumblingProcessingTimeWindows(size, offset)
    if more:
        assigner = SlidingProcessingTimeWindows(size, slide, offset)
    windows, model = Windows(KEEPING[kept](windowed(assigner, 0))), ClockModel(size, slide, offset)
    # The watermarks of a case are the times of its micro-batches.
    for events, windows.now, befalls in case.batches:
        befall(windows, events, befalls)
        fired, late = split(windows.batch(events))
        assert sorted(fired) == sorted(model.batch(events, windows.now))
        assert [f[2] for f in fired] == sorted(f[2] for f in fired)
        assert late == []
    assert windows.entries() == 0


@pytest.mark.parametrize("kept", KEEPING)
@settings(max_examples=60, deadline=None)
@given(
    case=cases(),
    size=st.integers(1, 20),
    interval=st.integers(1, 9),
    lateness=st.sampled_from([0, 3, 15]),
)
def test_windows_that_fire_at_intervals_match_the_model(
    kept: str, case: Case, size: int, interval: int, lateness: int
) -> None:
    stream = windowed(TumblingEventTimeWindows(size, 0), lateness)
    windows = Windows(KEEPING[kept](stream.trigger(ContinuousEventTimeTrigger(interval))))
    model = ContinuousModel(size, interval, lateness)
    for events, watermark, befalls in case.batches:
        befall(windows, events, befalls)
        expected = model.batch(events, watermark)
        fired, late = split(windows.batch(events, watermark))
        assert late == expected.late
        assert fired[: len(expected.at_once)] == expected.at_once
        assert sorted(fired[len(expected.at_once) :]) == sorted(expected.after)
    assert windows.entries() == 0


@pytest.mark.parametrize("kept", KEEPING)
@settings(max_examples=40, deadline=None)
@given(
    case=cases(),
    size=st.integers(1, 20),
    most=st.integers(1, 4),
    lateness=st.sampled_from([0, 15]),
)
def test_windows_with_an_evictor_match_the_end_of_the_model(
    kept: str, case: Case, size: int, most: int, lateness: int
) -> None:
    stream = windowed(TumblingEventTimeWindows(size, 0), lateness).evictor(CountEvictor.of(most))
    model = SlicedModel(size, size, 0, lateness)

    def last(fired: list[Fired]) -> list[Fired]:
        # Values are numbered as they come.
        return [(*window, values[-most:]) for *window, values in fired]

    def batch(events: list[Event], watermark: int) -> Output:
        output = model.batch(events, watermark)
        return Output(last(output.at_once), last(output.after), output.late)

    run(Windows(KEEPING[kept](stream)), batch, case, grouped=False)
