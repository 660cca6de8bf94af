"""At-least-once: no input waits. The claims are those of Flink's CheckpointBarrierTrackerTest.

| there | here |
|---|---|
| SingleChannelNoBarriers, MultiChannelNoBarriers | without_barriers_everything_passes |
| SingleChannelWithBarriers | one_input_is_cut_at_every_barrier |
| SingleChannelWithSkippedBarriers | ids_need_not_follow_each_other |
| MultiChannelWithBarriers | the_cut_is_where_the_last_barrier_comes |
| MultiChannelSkippingCheckpoints | a_higher_barrier_first_means_that_the_lower_one_is_gone |
| CompleteCheckpointsOnLateBarriers | a_late_barrier_still_completes_its_checkpoint, |
| | barriers_may_run_ahead_by_several_checkpoints |
| TwoLastBarriersOneByOne | two_checkpoints_wait_for_one_input_and_are_cut_in_order |
| SingleChannelAbortCheckpoint | an_aborted_barrier_is_passed_over |
| MultiChannelAbortCheckpoint | an_abort_before_between_or_behind_its_barriers_… |
| NextFirstCheckpointBarrierOvertakesCancellationBarrier, | an_abort_that_comes_late_… |
| InterleavedCancellationBarriers | |
| TriggerCheckpointsWithEndOfPartition, | an_end_does_not_stand_for_a_barrier |
| TriggerCheckpointsAfterReceivedEndOfPartition | |
| DeduplicateChannelsWithBothBarrierAndEndOfPartition, | an_input_that_ends_behind_its_barrier_… |
| NoFastPathWithChannelFinishedDuringCheckpoints(Cancel) | |
| CompleteAndRemoveAbortedCheckpointWithEndOfPartition, | ends_and_aborts_go_together |
| AbortCheckpointsAfterEndOfPartitionReceived | |
| Metrics, SingleChannelMetrics | not here: times and bytes belong to the stage's loop |

An end does not count as a barrier here: an input that has ended answers every checkpoint with an
empty one. An abort is no entry of a channel: it reaches all stages at once.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.barriers.alignment import (
    AlignmentDecision,
    BarrierHandling,
    InputFacts,
    decide_alignment,
)
from penstock.ids import ChannelId, CheckpointId
from tests.unit.checkpoint.barriers.one_stage import PLENTY, OneStage, b, data


def stage(inputs: str = "ab", at_once: int = PLENTY) -> OneStage:
    return OneStage(inputs, BarrierHandling.AT_LEAST_ONCE, at_once)


# -- barriers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("inputs", ["a", "abc"])
def test_without_barriers_everything_passes(inputs: str) -> None:
    it = stage(inputs)
    it.play(" ".join(f"{i}1 {i}2" for i in inputs))
    assert it.seen.split() == sorted(f"{i}{n}" for i in inputs for n in (1, 2))
    assert (it.snapshots, it.blocked) == ([], "")


def test_one_input_takes_a_snapshot_at_every_barrier() -> None:
    it = stage("a")
    it.arrive("a1 a2 a#1 a3 a#2 a#3 a4 a#4")
    it.run()
    assert it.snapshots == [1, 2, 3, 4]
    assert it.states == {1: "a1 a2", 2: "a1 a2 a3", 3: "a1 a2 a3", 4: "a1 a2 a3 a4"}


def test_ids_need_not_follow_each_other() -> None:
    it = stage("a")
    it.play("a1 a#1 a#3 a2 a#4 a3 a#10 a4")
    assert it.snapshots == [1, 3, 4, 10]


def test_the_snapshot_is_taken_where_the_last_barrier_arrives() -> None:
    it = stage("abc")
    it.play("a1 c1 b#1 c#1 c2 b1 a#1 a2 b2 a#2 b#2 c#2 c3")
    assert it.snapshots == [1, 2]
    # c2 and b1 are after their barriers, and came before the last barrier.
    assert it.states == {1: "a1 b1 c1 c2", 2: "a1 a2 b1 b2 c1 c2"}


def test_no_input_is_ever_blocked() -> None:
    it = stage()
    it.play("a#1 a1 a2")
    assert (it.seen, it.blocked, it.snapshots) == ("a1 a2", "", [])
    it.play("b#1")
    assert it.states == {1: "a1 a2"}


def test_all_data_before_a_barrier_is_in_the_snapshot_however_small_micro_batches_are() -> None:
    it = stage(at_once=1)
    it.arrive("a#1 a1 a2 b1 b2 b3 b#1 b4")
    it.run()
    assert it.states == {1: "a1 a2 b1 b2 b3"}


def test_nothing_after_the_barrier_is_taken_from_the_input_that_completes_the_snapshot() -> None:
    it = stage()
    it.arrive("a#1 b#1 b1 a1")
    assert it.decide() == AlignmentDecision({ChannelId(0): 1, ChannelId(1): 1}, CheckpointId(1))


def test_an_input_that_has_passed_continues_in_the_micro_batch_before_the_snapshot() -> None:
    it = stage()
    it.play("a#1")
    it.arrive("a1 b1 b#1 b2")
    assert it.decide() == AlignmentDecision({ChannelId(0): 1, ChannelId(1): 2}, CheckpointId(1))


# -- several checkpoints ------------------------------------------------------------------------


def test_a_higher_barrier_first_means_that_the_lower_one_never_comes() -> None:
    it = stage("abc")
    it.play("a#1 b#1 c#1 c#3 c1")
    it.arrive("a#4 b1 b#4 c2 c#4")
    it.run()
    assert it.states == {1: "", 4: "b1 c1 c2"}


def test_a_late_barrier_still_completes_its_checkpoint() -> None:
    it = stage("abc")
    it.play("b#3 c#3 b1 c#4 b#4 c1 a#3 a1 a#4")
    assert it.snapshots == [3, 4]
    assert it.states == {3: "b1 c1", 4: "a1 b1 c1"}


def test_barriers_may_run_ahead_by_several_checkpoints() -> None:
    it = stage("abc")
    it.play("b#6 a#6 b#7 !6 c#7 c#8 b#8 b#9 a#7 c#9 c#10 a#8 a#9 b#10 a#10")
    assert it.snapshots == [7, 8, 9, 10]


def test_two_checkpoints_wait_for_one_input_and_are_taken_in_order() -> None:
    it = stage()
    it.play("a#1 a1 a#2 a2")
    assert it.snapshots == []
    it.arrive("b#1 b1 b#2")
    it.run()
    assert it.states == {1: "a1 a2", 2: "a1 a2 b1"}


# -- aborts -------------------------------------------------------------------------------------


def test_an_aborted_barrier_is_passed_over() -> None:
    it = stage("a")
    it.play("a1 a#1 a2 !2 a#2 a3 a#3")
    assert (it.snapshots, it.seen) == ([1, 3], "a1 a2 a3")


@pytest.mark.parametrize(
    "second",
    [
        pytest.param("!2 a#2 a2 c#2 b#2", id="before"),
        pytest.param("a#2 a2 !2 c#2 b#2", id="between"),
        pytest.param("a#2 c#2 a2 !2 b#2", id="at the last"),
        pytest.param("a#2 a2 !2", id="and some never come"),
    ],
)
def test_an_abort_before_between_or_after_its_barriers_leaves_the_others_complete(
    second: str,
) -> None:
    it = stage("abc")
    it.play(f"a1 a#1 b#1 c#1 {second} b1 b#3 c#3 a#3")
    assert it.snapshots == [1, 3]
    assert it.states[3] == "a1 a2 b1"


def test_an_abort_that_comes_late_changes_nothing_for_the_next_checkpoint() -> None:
    it = stage()
    it.play("b#1 b#2 !1 a#2")
    assert it.snapshots == [2]
    it.play("a#3 !3 b#4 !4 a#4 b#5 a#5")
    assert it.snapshots == [2, 5]


# -- ends ---------------------------------------------------------------------------------------


def test_an_end_does_not_stand_for_a_barrier() -> None:
    it = stage("abc")
    it.play("c$ a#5 b#5")
    assert it.snapshots == []
    it.play("c#5 b$ a#6 b#6 c#6")
    assert (it.snapshots, it.ends) == ([5, 6], 0)
    it.play("a$ a#7 b#7 c#7")
    assert (it.snapshots, it.ends) == ([5, 6, 7], 1)


def test_an_input_that_ends_after_its_barrier_counts_once() -> None:
    it = stage("abc")
    it.play("a#2 b#2 b1 b$")
    assert it.snapshots == []
    it.play("c#2")
    assert it.snapshots == [2]


def test_the_end_comes_with_the_last_input_although_a_barrier_follows() -> None:
    it = stage()
    it.arrive("a$ a#1 b1 b$ b#1")
    assert it.decide() == AlignmentDecision(
        {ChannelId(0): 2, ChannelId(1): 3}, CheckpointId(1), True
    )


def test_ends_and_aborts_go_together() -> None:
    it = stage("abc")
    it.play("!4 b#4 c$ a#5 c#5 !5 b#5 b$ a$ a#6 b#6 c#6")
    assert (it.snapshots, it.ends) == ([6], 1)


# -- savepoints ---------------------------------------------------------------------------------


def test_a_savepoint_blocks_inputs_even_with_at_least_once() -> None:
    it = stage()
    it.trigger(1, BarrierHandling.ALIGNED)
    it.play("a#1 a1 b1")
    assert (it.seen, it.blocked) == ("b1", "a")
    it.play("b#1")
    assert it.states == {1: "b1"}
    assert it.seen == "a1 b1"


def test_a_savepoint_waits_for_the_checkpoint_before_it_and_blocks_meanwhile() -> None:
    it = stage()
    it.trigger(2, BarrierHandling.ALIGNED)
    it.play("a#1 a1 a#2 a2 b1")
    assert (it.seen, it.blocked, it.snapshots) == ("a1 b1", "a", [])
    it.play("b#1 b2 b#2 b3")
    assert it.states == {1: "a1 b1", 2: "a1 b1 b2"}
    assert it.seen == "a1 a2 b1 b2 b3"


def test_a_checkpoint_after_a_savepoint_is_not_seen_before_it() -> None:
    it = stage()
    it.trigger(1, BarrierHandling.ALIGNED)
    it.play("a#1 a1 a#2 a2")
    assert (it.seen, it.blocked) == ("", "a")
    it.play("b#1")
    assert (it.seen, it.snapshots) == ("a1 a2", [1])
    it.play("b#2")
    assert it.states == {1: "", 2: "a1 a2"}


def test_an_abort_of_a_savepoint_unblocks_the_input() -> None:
    it = stage()
    it.trigger(2, BarrierHandling.ALIGNED)
    it.play("a#1 a#2 a1 !2")
    assert (it.seen, it.blocked) == ("a1", "")
    it.play("b#1 b#2")
    assert it.snapshots == [1]


def test_a_savepoint_whose_barrier_one_input_has_consumed_is_skipped() -> None:
    first, second = ChannelId(0), ChannelId(1)
    facts = {
        first: InputFacts([data()], passed=CheckpointId(2)),
        second: InputFacts([b(1), b(2), data()]),
    }
    live = {
        CheckpointId(1): BarrierHandling.AT_LEAST_ONCE,
        CheckpointId(2): BarrierHandling.ALIGNED,
    }
    assert decide_alignment(facts, live, PLENTY) == AlignmentDecision(
        {first: 1, second: 1}, CheckpointId(1)
    )
    facts[second] = InputFacts([b(2), data()], passed=CheckpointId(1))
    assert decide_alignment(facts, live, PLENTY, CheckpointId(1)) == AlignmentDecision(
        {first: 1, second: 2}
    )


@pytest.mark.parametrize("inputs", ["a", "ab"])
def test_a_checkpoint_whose_barrier_all_inputs_have_consumed_is_skipped(inputs: str) -> None:
    # It was triggered, and its barriers came, after the live checkpoints were read.
    it = stage(inputs)
    it.arrive(" ".join(f"{i}#1 {i}1" for i in inputs))
    it.live.clear()
    it.run()
    it.trigger(1, BarrierHandling.AT_LEAST_ONCE)
    assert it.decide() == AlignmentDecision({})
    it.play(" ".join(f"{i}2" for i in inputs))
    assert it.snapshots == []


# -- any inputs ---------------------------------------------------------------------------------


@st.composite
def stories(draw: st.DrawFn) -> list[str]:
    """What three inputs bring: barriers 1 to 3 each in order, data around them, in any order."""
    queues = []
    for name in "abc":
        words = [f"{name}{n}" for n in range(draw(st.integers(0, 4)))]
        for n in (3, 2, 1):
            words.insert(draw(st.integers(0, _first_barrier(words))), f"{name}#{n}")
        queues.append(words)
    order = draw(st.permutations([i for i, words in enumerate(queues) for _ in words]))
    return [queues[i].pop(0) for i in order]


def _first_barrier(words: list[str]) -> int:
    return next((i for i, word in enumerate(words) if "#" in word), len(words))


@given(stories(), st.integers(1, 5), st.integers(1, 9))
def test_every_snapshot_has_all_data_before_its_barrier_and_nothing_is_blocked(
    story: list[str], at_once: int, pause: int
) -> None:
    it = stage("abc", at_once)
    for i, word in enumerate(story):
        it.arrive(word)
        if i % pause == 0:
            it.run()
            assert not any(log.pending() for log in it.logs.values())
    it.run()
    assert it.snapshots == [1, 2, 3]
    for n in it.snapshots:
        for name in "abc":
            mine = [word for word in story if word[0] == name]
            before = {word for word in mine[: mine.index(f"{name}#{n}")] if "#" not in word}
            assert before <= set(it.states[n].split())
