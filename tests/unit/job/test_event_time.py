"""Watermarks on the driver: the least of all inputs, idle ones left out, never going back."""

from __future__ import annotations

from penstock.channel.log import Clock
from penstock.checkpoint.metadata import OperatorTime
from penstock.common import Duration, WatermarkStrategy
from penstock.common.event_time import MIN_WATERMARK
from penstock.datastream.stream_execution_environment import plans_instead_of_runs
from penstock.graph.plan import Plan
from penstock.ids import ChannelId
from penstock.job.event_time import InputTime, MakerTime, StageTime
from penstock.task.messages import NextTimers, UnitTime
from tests.unit.support import environment

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


def test_a_timer_set_for_the_past_waits_for_the_next_watermark() -> None:
    plans: list[Plan] = []
    with plans_instead_of_runs(plans.append):
        env = environment()
        env.from_collection([1]).print()
        env.execute()
    time = StageTime(plans[0].stages[0], {}, 0)
    time.clock = Clock(100)
    time.timers = [NextTimers(event=10)]
    assert not time.is_event_due(100)
    assert time.is_event_due(101)
