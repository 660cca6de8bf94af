"""Watermarks on the driver: the least of all inputs, idle ones left out, never going back."""

from __future__ import annotations

from msgspec import msgpack

from penstock.channel.log import Clock
from penstock.checkpoint.metadata import OperatorTime
from penstock.common import Duration, WatermarkStrategy
from penstock.common.event_time import MIN_WATERMARK
from penstock.datastream.stream_execution_environment import plans_instead_of_runs
from penstock.graph.plan import Plan
from penstock.ids import ChannelId
from penstock.job.asked_clock import AskedClock
from penstock.job.event_time import InputTime, MakerTime, StageTime
from penstock.recovery.channels import channel_ends
from penstock.task.messages import NextTimers, UnitTime
from penstock.testing import Idle, ScriptedSource
from tests.unit.support import environment, plan_of

ONE, TWO = ChannelId(1), ChannelId(2)
PLAIN = WatermarkStrategy.for_monotonous_timestamps()
IDLE = PLAIN.with_idleness(Duration.of_seconds(5))


def maker(strategy: WatermarkStrategy = PLAIN, now: float = 0.0, **units: int) -> MakerTime:
    return MakerTime(strategy, OperatorTime(units=units), now)


def test_the_watermark_of_several_splits_is_the_least_of_them() -> None:
    time = maker()
    time.observe([UnitTime("a", 10), UnitTime("b", 4)], 0)
    assert time.clock(0) == Clock(4)
    time.observe([UnitTime("b", 20)], 0)
    assert time.clock(0) == Clock(10)


def test_of_a_split_in_two_subtasks_the_further_piece_counts() -> None:
    time = maker()
    time.observe([UnitTime("a", 10), UnitTime("a", 30)], 0)
    assert time.clock(0) == Clock(30)


def test_a_watermark_never_goes_back() -> None:
    time = maker()
    time.observe([UnitTime("a", 10)], 0)
    assert time.clock(0) == Clock(10)
    time.observe([UnitTime("b", 3)], 0)
    assert time.clock(0) == Clock(10)


def test_a_subtask_that_has_seen_nothing_holds_the_watermark() -> None:
    time = maker()
    time.expect(["#0", "#1"], 0)
    time.observe([UnitTime("#0", 10)], 0)
    assert time.clock(0) == Clock(MIN_WATERMARK)


def test_a_finished_split_is_not_waited_for() -> None:
    time = maker()
    time.observe([UnitTime("a", 10), UnitTime("b", 50)], 0)
    time.forget(["a"])
    assert time.clock(0) == Clock(50)
    time.observe([UnitTime("c", 60)], 0)
    time.forget(["b", "c"])
    assert time.clock(0) == Clock(60)


def test_a_split_that_is_silent_for_too_long_is_left_out_until_it_speaks() -> None:
    time = maker(IDLE)
    time.observe([UnitTime("a", 10), UnitTime("b", 4)], 0)
    assert time.idle_at(0) == 5.0
    time.observe([UnitTime("a", 30)], 3)
    assert time.clock(4.9) == Clock(4)
    assert time.clock(5) == Clock(30)
    assert time.idle_at(5) == 8.0
    assert time.clock(8) == Clock(30, is_idle=True)
    assert time.idle_at(8) is None
    time.observe([UnitTime("b", 6)], 9)
    assert time.clock(9) == Clock(30)


def test_what_a_checkpoint_keeps_of_a_step_is_where_it_goes_on() -> None:
    time = maker()
    time.observe([UnitTime("a", 10), UnitTime("b", 4)], 0)
    time.clock(0)
    again = MakerTime(PLAIN, time.saved(), 100)
    assert again.clock(100) == Clock(4)
    again.observe([UnitTime("b", 40)], 100)
    assert again.clock(100) == Clock(10)


def test_the_watermark_of_two_inputs_is_the_least_of_them() -> None:
    inputs = InputTime([ONE, TWO])
    assert inputs.observe({ONE: Clock(10)}, MIN_WATERMARK) == Clock(MIN_WATERMARK)
    assert inputs.observe({TWO: Clock(7)}, MIN_WATERMARK) == Clock(7)
    assert inputs.observe({TWO: Clock(12)}, 7) == Clock(10)


def test_an_idle_input_is_left_out_and_all_idle_ones_give_the_most() -> None:
    inputs = InputTime([ONE, TWO])
    inputs.observe({ONE: Clock(10), TWO: Clock(3)}, MIN_WATERMARK)
    assert inputs.observe({TWO: Clock(3, is_idle=True)}, 3) == Clock(10)
    assert inputs.observe({ONE: Clock(15, is_idle=True)}, 10) == Clock(15, is_idle=True)


def test_an_input_back_from_being_idle_holds_nobody_up_until_it_has_caught_up() -> None:
    inputs = InputTime([ONE, TWO])
    inputs.observe({ONE: Clock(10), TWO: Clock(3, is_idle=True)}, MIN_WATERMARK)
    assert inputs.observe({TWO: Clock(5)}, 10) == Clock(10)
    assert inputs.observe({ONE: Clock(20)}, 10) == Clock(20)
    assert inputs.observe({TWO: Clock(25)}, 20) == Clock(20)
    assert inputs.observe({ONE: Clock(30)}, 20) == Clock(25)


def test_what_a_checkpoint_keeps_of_inputs_is_where_they_go_on() -> None:
    inputs = InputTime([ONE, TWO])
    inputs.observe({ONE: Clock(10), TWO: Clock(3, is_idle=True)}, MIN_WATERMARK)
    again = InputTime([ONE, TWO], inputs.clocks, 10)
    assert again.observe({}, 10) == Clock(10)
    again.observe({TWO: Clock(5)}, 10)
    back = InputTime([ONE, TWO], again.clocks, 10)
    assert back.observe({ONE: Clock(20)}, 10) == Clock(20)
    assert back.observe({TWO: Clock(15)}, 20) == Clock(20)
    assert back.observe({TWO: Clock(25)}, 20) == Clock(20)
    assert back.observe({ONE: Clock(30)}, 20) == Clock(25)


def test_inputs_are_found_again_by_the_steps_before_them() -> None:
    env = environment()
    sources = [
        env.from_source(ScriptedSource([Idle()]), PLAIN, name).uid(name) for name in ("a", "b")
    ]
    sources[0].union(sources[1]).key_by(str).map(str).uid("map").print()
    plan = plan_of(env)
    stage = next(s for s in plan.stages if len(s.inputs) == 2)
    one, two = (c.id for c in stage.inputs)
    time = StageTime(stage, {}, 0, channel_ends(plan))
    time.inputs.observe({one: Clock(10), two: Clock(3, is_idle=True)}, MIN_WATERMARK)
    saved = msgpack.decode(msgpack.encode(time.saved()), type=dict[str, OperatorTime])
    assert [(i.producer, i.watermark, i.is_idle) for i in saved["map"].inputs] == [
        ("a", 10, False),
        ("b", 3, True),
    ]
    again = StageTime(stage, saved, 0, channel_ends(plan))
    assert again.inputs.clocks == {one: Clock(10), two: Clock(3, is_idle=True)}


def test_a_unit_that_said_to_be_idle_is_so_after_a_restore() -> None:
    time = maker()
    time.observe([UnitTime("a", 10), UnitTime("b", 4, is_idle=True)], 0)
    again = MakerTime(PLAIN, time.saved(), 100)
    assert again.clock(100) == Clock(10)


def test_the_clock_of_idleness_moves_when_input_was_asked_for() -> None:
    clock = AskedClock(0)
    clock.look(3, held=False, asked=False)
    assert clock.reading == 0
    clock.look(4, held=False, asked=True)
    assert clock.reading == 4
    assert clock.at(5) == 5


def test_the_clock_of_idleness_stands_still_while_input_is_held_back() -> None:
    clock = AskedClock(0)
    clock.look(2, held=True, asked=False)
    assert (clock.reading, clock.at(9), clock.when(5)) == (0, 2, None)
    clock.look(8, held=True, asked=True)
    assert (clock.reading, clock.at(9)) == (0, 2)
    clock.look(10, held=False, asked=True)
    assert (clock.reading, clock.at(11), clock.when(5)) == (2, 3, 13)


def test_a_timer_set_for_the_past_waits_for_the_next_watermark() -> None:
    plans: list[Plan] = []
    with plans_instead_of_runs(plans.append):
        env = environment()
        env.from_collection([1]).print()
        env.execute()
    time = StageTime(plans[0].stages[0], {}, 0, {})
    time.clock = Clock(100)
    time.timers = [NextTimers(event=10)]
    assert not time.is_event_due(100)
    assert time.is_event_due(101)
