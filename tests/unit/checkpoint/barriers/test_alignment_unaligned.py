"""Barriers that overtake. The claims are those of Flink's UnalignedCheckpointsTest.

| there | here |
|---|---|
| SingleChannelNoBarriers, MultiChannelNoBarriers | without_barriers_everything_passes |
| SingleChannelWithBarriers | one_input_is_cut_where_the_stage_stands |
| MultiChannelWithBarriers | the_first_barrier_cuts, what_comes_before_a_late_barrier_…, |
| | nothing_behind_its_barrier_is_in_flight, an_empty_checkpoint_…, one_checkpoint_after_another |
| MultiChannelTrailingInflightData, EarlyCleanup | trailing_data_is_of_the_next_checkpoint_alone |
| StartAlignmentWithClosedChannels, | inputs_that_ended_before_hold_nothing_in_flight |
| TriggerCheckpointsAfterReceivedEndOfPartition | |
| EndOfStreamWhileCheckpoint, EndOfStreamWithPendingCheckpoint, | an_end_before_a_late_barrier_… |
| TriggerCheckpointsWithEndOfPartition | |
| SingleChannelAbortCheckpoint, MissingCancellationBarriers | an_aborted_barrier_is_passed_over |
| MultiChannelAbortCheckpoint | an_abort_before_between_or_behind_its_barriers_… |
| ProcessCancellationBarrierAfterProcessBarrier | an_abort_in_the_middle_of_a_recording_… |
| ProcessCancellationBarrierBeforeProcessAndReceiveBarrier | a_checkpoint_aborted_before_… |
| NotifyAbortCheckpointBeforeCancellingAsyncCheckpoint | not here: the coordinator's steps |
| Metrics | not here: times and bytes belong to the stage's loop |

An input that ends does not abort a checkpoint here: it still brings the barrier. A barrier does
not jump in the channel: that it can be seen there is enough, and later it is passed over.
"""

from __future__ import annotations

import pytest

from penstock.checkpoint.barriers.alignment import (
    AlignmentDecision,
    BarrierHandling,
    InputFacts,
    decide_alignment,
)
from penstock.ids import ChannelId, CheckpointId
from tests.unit.checkpoint.barriers.one_stage import PLENTY, OneStage, b, data


def stage(inputs: str = "ab", at_once: int = PLENTY) -> OneStage:
    return OneStage(inputs, BarrierHandling.UNALIGNED, at_once)


# -- barriers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("inputs", ["a", "abcd"])
def test_without_barriers_everything_passes(inputs: str) -> None:
    it = stage(inputs)
    it.play(" ".join(f"{i}1 {i}$" for i in inputs))
    assert it.seen.split() == [f"{i}1" for i in inputs]
    assert (it.snapshots, it.ends) == ([], 1)


def test_with_one_input_the_snapshot_is_taken_at_once() -> None:
    it = stage("a")
    it.play("a1")
    it.arrive("a2 a3 a#1 a4")
    it.run()
    assert it.states == {1: "a1"}
    assert it.in_flight(1) == "a2 a3"
    assert it.is_recorded(1)
    assert it.seen == "a1 a2 a3 a4"


def test_a_barrier_that_overtakes_takes_nothing_with_it() -> None:
    it = stage()
    it.arrive("a1 a#1 a2 b1")
    assert it.decide() == AlignmentDecision({}, CheckpointId(1), overtakes=True)


def test_the_first_barrier_triggers_the_snapshot_and_no_input_is_blocked() -> None:
    it = stage("abc")
    it.play("a1 b#1")
    assert (it.snapshots, it.blocked) == ([1], "")
    it.play("b1 c1")
    assert (it.seen, it.blocked) == ("a1 b1 c1", "")


def test_what_comes_before_a_late_barrier_is_in_flight_though_it_is_processed_at_once() -> None:
    it = stage("abc")
    it.play("a1 b#1 a2 c1 b1 c#1 c2")
    assert it.seen == "a1 a2 b1 c1 c2"
    assert it.in_flight(1) == "a2 c1"
    assert not it.is_recorded(1)
    it.play("a3 a#1 a4")
    assert it.in_flight(1) == "a2 a3 c1"
    assert it.is_recorded(1)


def test_nothing_after_its_barrier_is_in_flight() -> None:
    it = stage()
    it.arrive("a1 a#1 a2 b1")
    it.run()
    it.play("a3 b2 b#1 b3 a4")
    assert it.in_flight(1) == "a1 b1 b2"


def test_an_empty_checkpoint_has_nothing_in_flight() -> None:
    it = stage("abc")
    it.play("a1 b1 c1 b#1 c#1 a#1")
    assert (it.in_flight(1), it.states[1]) == ("", "a1 b1 c1")
    assert it.is_recorded(1)


def test_a_barrier_is_skipped_when_it_is_reached_later() -> None:
    it = stage()
    it.arrive("a1 a#1 b1")
    it.run()
    it.play("b2 b#1 b3")
    assert it.snapshots == [1]
    assert not any(log.pending() for log in it.logs.values())


def test_what_is_recorded_spans_as_many_micro_batches_as_it_needs() -> None:
    it = stage(at_once=1)
    it.arrive("a1 a2 a3 a#1 b1 b2")
    it.run()
    assert it.states[1] == ""
    assert it.in_flight(1) == "a1 a2 a3 b1 b2"


def test_one_checkpoint_after_another() -> None:
    it = stage("abc")
    it.play("a1 c1 b#1 c#1 c2 b1 a2 a#1 a3 b2 a#2 b#2 c#2 c3 c#3 c4 a#3 b3 b#3")
    assert it.snapshots == [1, 2, 3]
    assert [it.in_flight(n) for n in it.snapshots] == ["a2", "", "b3"]
    assert it.states == {1: "a1 c1", 2: "a1 a2 a3 b1 b2 c1 c2", 3: "a1 a2 a3 b1 b2 c1 c2 c3"}


def test_in_flight_data_of_one_checkpoint_may_be_overtaken_by_the_next() -> None:
    it = stage()
    it.arrive("a1 a#1 b#1")
    assert it.step()
    it.live.pop(CheckpointId(1))
    it.arrive("a2 a#2 b1 b#2")
    assert it.step()
    assert (it.in_flight(1), it.in_flight(2)) == ("a1", "a1 a2 b1")
    assert it.states == {1: "", 2: ""}


def test_trailing_data_is_of_the_next_checkpoint_alone() -> None:
    it = stage("abc")
    it.play("a1 b1 c1 b#1 c#1 a#1 c2 b2 a2 b#2 b3 b4 b$ a3 c3 c#2 c4 c$ a4 a$")
    assert it.in_flight(1) == ""
    assert not it.is_recorded(2)
    it.play("a#2")
    assert it.in_flight(2) == "a3 a4 c3"
    assert it.is_recorded(2)
    assert it.ends == 1


# -- ends ---------------------------------------------------------------------------------------


def test_inputs_that_ended_before_have_no_in_flight_data() -> None:
    it = stage("abcd")
    it.play("c$ b$ a1 d1 d#2 a#2")
    assert not it.is_recorded(2)
    it.play("b#2 c#2 d2 a2 d#3 d3 a3 b#3 c#3 a#3")
    assert (it.in_flight(2), it.in_flight(3)) == ("", "a3")
    assert it.is_recorded(3)


def test_an_end_before_a_late_barrier_is_not_in_flight_and_the_checkpoint_continues() -> None:
    it = stage("abc")
    it.play("b#1 a1 a$ c$")
    assert (it.in_flight(1), it.is_recorded(1)) == ("a1", False)
    it.play("a#1 c#1")
    assert (it.in_flight(1), it.is_recorded(1)) == ("a1", True)
    it.play("b1 b$")
    assert it.ends == 1


def test_an_overtaken_end_of_input_comes_once_when_it_is_reached() -> None:
    it = stage()
    it.arrive("a1 a$ a#1 b$ b#1")
    assert it.step()
    assert (it.snapshots, it.ends) == ([1], 0)
    it.run()
    assert it.ends == 1


# -- aborts -------------------------------------------------------------------------------------


def test_an_aborted_barrier_is_passed_over() -> None:
    it = stage("a")
    it.play("a1 a#1 a2 a#2 !4 !3 a#4 a3 a#5 a4 !6 a#6 a5")
    assert (it.snapshots, it.seen) == ([1, 2, 5], "a1 a2 a3 a4 a5")


@pytest.mark.parametrize(
    ("second", "cuts"),
    [
        pytest.param("!2 a#2 a2 c#2 b#2", [1, 3], id="before"),
        pytest.param("a#2 a2 !2 c#2 b#2", [1, 2, 3], id="between"),
        pytest.param("a#2 c#2 a2 b#2 !2", [1, 2, 3], id="after"),
    ],
)
def test_an_abort_before_between_or_after_its_barriers_leaves_the_others_complete(
    second: str, cuts: list[int]
) -> None:
    it = stage("abc")
    it.play(f"a1 a#1 b#1 c#1 {second} b1 b#3 c1 c#3 a#3")
    assert it.snapshots == cuts
    assert (it.states[3], it.in_flight(3)) == ("a1 a2 b1", "c1")
    assert it.is_recorded(3)


def test_an_abort_in_the_middle_of_a_recording_does_no_harm() -> None:
    it = stage()
    it.play("a#1 b1 !1")
    it.arrive("b2 b#1 b3 b#2 a1 a#2")
    it.run()
    assert it.snapshots == [1, 2]
    # The barrier of the aborted checkpoint is in the middle of what 2 overtook.
    assert (it.states[2], it.in_flight(2)) == ("b1", "a1 b2 b3")
    assert it.seen == "a1 b1 b2 b3"


def test_a_checkpoint_aborted_before_its_barrier_came_is_never_begun() -> None:
    it = stage()
    it.play("!1 a#1 a1 b#1")
    assert (it.snapshots, it.seen) == ([], "a1")


# -- what the decision must not do --------------------------------------------------------------


def test_a_barrier_that_one_input_has_consumed_cannot_overtake_any_more() -> None:
    # The data after it is in the state there: the source would send it again.
    facts = {
        ChannelId(0): InputFacts([data()], passed=CheckpointId(1)),
        ChannelId(1): InputFacts([data(), b(1), data()]),
    }
    decision = decide_alignment(facts, {CheckpointId(1): BarrierHandling.UNALIGNED}, PLENTY)
    assert decision == AlignmentDecision({ChannelId(0): 1, ChannelId(1): 3})


def test_a_full_micro_batch_does_not_delay_the_snapshot() -> None:
    it = stage(at_once=1)
    it.arrive("a1*9 a2*9 a#1 b1*9")
    assert it.decide().overtakes
