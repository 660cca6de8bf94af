"""Watermarks on the driver: the minimum of all active inputs, never decreasing."""

from __future__ import annotations

from msgspec import msgpack

from penstock.channel.log import WatermarkStatus
from penstock.checkpoint.storage.metadata import OperatorTime
from penstock.common import Duration, WatermarkStrategy
from penstock.common.event_time import MIN_WATERMARK
from penstock.datastream.stream_execution_environment import collect_plans
from penstock.graph.plan import Plan
from penstock.ids import ChannelId
from penstock.job.time.stage_time import StageTime
from penstock.job.time.watermarks import IdlenessClock, InputWatermarks, OperatorWatermarks
from penstock.recovery.channel_matching import channel_endpoints
from penstock.task.messages import NextTimers, SplitWatermark
from penstock.testing import Idle, ScriptedSource
from tests.unit.support import environment, plan_of

ONE, TWO = ChannelId(1), ChannelId(2)
PLAIN = WatermarkStrategy.for_monotonous_timestamps()
IDLE = PLAIN.with_idleness(Duration.of_seconds(5))


def maker(
    strategy: WatermarkStrategy = PLAIN, now: float = 0.0, **splits: int
) -> OperatorWatermarks:
    return OperatorWatermarks(strategy, OperatorTime(splits=splits), now)


def test_the_watermark_of_several_splits_is_their_minimum() -> None:
    time = maker()
    time.observe([SplitWatermark("a", 10), SplitWatermark("b", 4)], 0)
    assert time.status(0) == WatermarkStatus(4)
    time.observe([SplitWatermark("b", 20)], 0)
    assert time.status(0) == WatermarkStatus(10)


def test_a_split_read_by_two_subtasks_counts_its_furthest_watermark() -> None:
    time = maker()
    time.observe([SplitWatermark("a", 10), SplitWatermark("a", 30)], 0)
    assert time.status(0) == WatermarkStatus(30)


def test_a_watermark_never_goes_back() -> None:
    time = maker()
    time.observe([SplitWatermark("a", 10)], 0)
    assert time.status(0) == WatermarkStatus(10)
    time.observe([SplitWatermark("b", 3)], 0)
    assert time.status(0) == WatermarkStatus(10)


def test_a_subtask_without_records_holds_back_the_watermark() -> None:
    time = maker()
    time.expect(["#0", "#1"], 0)
    time.observe([SplitWatermark("#0", 10)], 0)
    assert time.status(0) == WatermarkStatus(MIN_WATERMARK)


def test_a_finished_split_is_not_waited_for() -> None:
    time = maker()
    time.observe([SplitWatermark("a", 10), SplitWatermark("b", 50)], 0)
    time.remove_finished(["a"])
    assert time.status(0) == WatermarkStatus(50)
    time.observe([SplitWatermark("c", 60)], 0)
    time.remove_finished(["b", "c"])
    assert time.status(0) == WatermarkStatus(60)


def test_an_idle_split_is_ignored_until_it_has_records_again() -> None:
    time = maker(IDLE)
    time.observe([SplitWatermark("a", 10), SplitWatermark("b", 4)], 0)
    assert time.next_idle(0) == 5.0
    time.observe([SplitWatermark("a", 30)], 3)
    assert time.status(4.9) == WatermarkStatus(4)
    assert time.status(5) == WatermarkStatus(30)
    assert time.next_idle(5) == 8.0
    assert time.status(8) == WatermarkStatus(30, is_idle=True)
    assert time.next_idle(8) is None
    time.observe([SplitWatermark("b", 6)], 9)
    assert time.status(9) == WatermarkStatus(30)


def test_operator_watermarks_continue_from_a_snapshot() -> None:
    time = maker()
    time.observe([SplitWatermark("a", 10), SplitWatermark("b", 4)], 0)
    time.status(0)
    again = OperatorWatermarks(PLAIN, time.snapshot(), 100)
    assert again.status(100) == WatermarkStatus(4)
    again.observe([SplitWatermark("b", 40)], 100)
    assert again.status(100) == WatermarkStatus(10)


def test_the_watermark_of_two_inputs_is_their_minimum() -> None:
    inputs = InputWatermarks([ONE, TWO])
    assert inputs.observe({ONE: WatermarkStatus(10)}, MIN_WATERMARK) == WatermarkStatus(
        MIN_WATERMARK
    )
    assert inputs.observe({TWO: WatermarkStatus(7)}, MIN_WATERMARK) == WatermarkStatus(7)
    assert inputs.observe({TWO: WatermarkStatus(12)}, 7) == WatermarkStatus(10)


def test_idle_inputs_are_ignored_and_all_idle_inputs_give_the_maximum() -> None:
    inputs = InputWatermarks([ONE, TWO])
    inputs.observe({ONE: WatermarkStatus(10), TWO: WatermarkStatus(3)}, MIN_WATERMARK)
    assert inputs.observe({TWO: WatermarkStatus(3, is_idle=True)}, 3) == WatermarkStatus(10)
    assert inputs.observe({ONE: WatermarkStatus(15, is_idle=True)}, 10) == WatermarkStatus(
        15, is_idle=True
    )


def test_an_input_back_from_idle_does_not_hold_back_the_watermark_until_it_has_caught_up() -> None:
    inputs = InputWatermarks([ONE, TWO])
    inputs.observe({ONE: WatermarkStatus(10), TWO: WatermarkStatus(3, is_idle=True)}, MIN_WATERMARK)
    assert inputs.observe({TWO: WatermarkStatus(5)}, 10) == WatermarkStatus(10)
    assert inputs.observe({ONE: WatermarkStatus(20)}, 10) == WatermarkStatus(20)
    assert inputs.observe({TWO: WatermarkStatus(25)}, 20) == WatermarkStatus(20)
    assert inputs.observe({ONE: WatermarkStatus(30)}, 20) == WatermarkStatus(25)


def test_input_watermarks_continue_from_a_snapshot() -> None:
    inputs = InputWatermarks([ONE, TWO])
    inputs.observe({ONE: WatermarkStatus(10), TWO: WatermarkStatus(3, is_idle=True)}, MIN_WATERMARK)
    again = InputWatermarks([ONE, TWO], inputs.statuses, 10)
    assert again.observe({}, 10) == WatermarkStatus(10)
    again.observe({TWO: WatermarkStatus(5)}, 10)
    back = InputWatermarks([ONE, TWO], again.statuses, 10)
    assert back.observe({ONE: WatermarkStatus(20)}, 10) == WatermarkStatus(20)
    assert back.observe({TWO: WatermarkStatus(15)}, 20) == WatermarkStatus(20)
    assert back.observe({TWO: WatermarkStatus(25)}, 20) == WatermarkStatus(20)
    assert back.observe({ONE: WatermarkStatus(30)}, 20) == WatermarkStatus(25)


def test_inputs_are_found_again_by_the_steps_before_them() -> None:
    env = environment()
    sources = [
        env.from_source(ScriptedSource([Idle()]), PLAIN, name).uid(name) for name in ("a", "b")
    ]
    sources[0].union(sources[1]).key_by(str).map(str).uid("map").print()
    plan = plan_of(env)
    stage = next(s for s in plan.stages if len(s.inputs) == 2)
    one, two = (c.id for c in stage.inputs)
    time = StageTime(stage, {}, 0, channel_endpoints(plan))
    time.inputs.observe(
        {one: WatermarkStatus(10), two: WatermarkStatus(3, is_idle=True)}, MIN_WATERMARK
    )
    saved = msgpack.decode(msgpack.encode(time.snapshot()), type=dict[str, OperatorTime])
    assert [(i.producer, i.watermark, i.is_idle) for i in saved["map"].inputs] == [
        ("a", 10, False),
        ("b", 3, True),
    ]
    again = StageTime(stage, saved, 0, channel_endpoints(plan))
    assert again.inputs.statuses == {
        one: WatermarkStatus(10),
        two: WatermarkStatus(3, is_idle=True),
    }


def test_a_split_marked_idle_is_idle_after_a_restore() -> None:
    time = maker()
    time.observe([SplitWatermark("a", 10), SplitWatermark("b", 4, is_idle=True)], 0)
    again = OperatorWatermarks(PLAIN, time.snapshot(), 100)
    assert again.status(100) == WatermarkStatus(10)


def test_the_idleness_clock_advances_when_input_was_polled() -> None:
    clock = IdlenessClock(0)
    clock.observe(3, blocked=False, polled=False)
    assert clock.reading == 0
    clock.observe(4, blocked=False, polled=True)
    assert clock.reading == 4
    assert clock.at(5) == 5


def test_the_idleness_clock_stops_while_input_is_blocked() -> None:
    clock = IdlenessClock(0)
    clock.observe(2, blocked=True, polled=False)
    assert (clock.reading, clock.at(9), clock.when(5)) == (0, 2, None)
    clock.observe(8, blocked=True, polled=True)
    assert (clock.reading, clock.at(9)) == (0, 2)
    clock.observe(10, blocked=False, polled=True)
    assert (clock.reading, clock.at(11), clock.when(5)) == (2, 3, 13)


def test_a_timer_set_for_the_past_waits_for_the_next_watermark() -> None:
    plans: list[Plan] = []
    with collect_plans(plans.append):
        env = environment()
        env.from_collection([1]).print()
        env.execute()
    time = StageTime(plans[0].stages[0], {}, 0, {})
    time.status = WatermarkStatus(100)
    time.timers = [NextTimers(event=10)]
    assert not time.has_event_timer_due(100)
    assert time.has_event_timer_due(101)
