"""Aligned and unaligned in turn. The claims are those of Flink's AlternatingCheckpointsTest.

| there | here |
|---|---|
| CheckpointHandling, SavepointHandling, Alternation, | checkpoints_overtake_and_savepoints_align |
| PreviousHandlerReset | in_turn |
| AlignedNeverTimeoutableCheckpoint | without_a_switch_the_cut_waits_for_all_barriers |
| TimeoutAlignment, TimeoutAlignmentOnFirstBarrier, | a_switch_lets_barriers_overtake_what_waits |
| ActiveTimeoutAlignmentOnAnnouncement, | |
| ActiveTimeoutAfterAnnouncementPassiveTimeout, | |
| ActiveTimeoutBeforeFirstAnnouncementPassiveTimeout | |
| TimeoutAlignmentAfterProcessingBarrier, | a_switch_lets_go_what_was_held |
| ActiveTimeoutAlignmentOnFirstBarrier, | |
| AllChannelsUnblockedAfteralignedCheckpointTimeout | |
| TimeoutAlignmentBeforeFirstBarrier | a_switch_before_the_first_barrier_overtakes_with_it |
| SwitchToUnalignedByUpstream, | a_barrier_that_overtook_upstream_overtakes_here |
| TimeoutAlignmentOnUnalignedCheckpoint | |
| TimeoutAlignmentWhenLocalBarrierFirst, | a_late_barrier_behind_a_switch_closes_what_is_recorded |
| ActiveTimeoutAfterLocalBarrierPassiveTimeout, | |
| ActiveTimeoutAfterBarrierPassiveTimeout, | |
| PassiveTimeoutAlignmentOnAnnouncement | |
| NoActiveTimeoutAlignmentAfterLastBarrier | a_switch_behind_the_last_barrier_changes_nothing |
| NoActiveTimeoutAlignmentAfterAbort | an_abort_leaves_nothing_to_overtake |
| AlignedAfterTimedOut, | the_next_checkpoint_begins_aligned_again |
| TimeoutAlignmentOnAnnouncementForSecondCheckpoint | |
| TimeoutAlignmentAfterReceivedEndOfPartition | a_switch_while_an_ended_input_is_missing_overtakes |
| StartNewCheckpointViaAnnouncement | an_end_between_barriers_does_not_disturb_the_alignment |
| ChannelResetOnNewBarrier | a_checkpoint_behind_a_savepoint_overtakes_once_that_is_cut |
| OutOfOrderBarrier | a_savepoint_that_is_gone_holds_nothing |
| NextFirstCheckpointBarrierOvertakesCancellationBarrier | an_abort_that_comes_late_… |
| HasInflightDataBeforeProcessBarrier | an_open_input_keeps_the_recording_open |
| NoActiveTimeoutAlignmentAfterClose, MetricsAlternation, | not here: the coordinator's clock, |
| MetricsSingleChannel | and the stage's loop |

Announcements and timers of a channel do not exist here: when an alignment has lasted too long is
the coordinator's to say, and every stage sees it in the way the checkpoint passes.
"""

from __future__ import annotations

import pytest

from penstock.checkpoint.barriers.alignment import AlignmentDecision, BarrierHandling
from penstock.ids import CheckpointId
from tests.unit.checkpoint.barriers.one_stage import OneStage

ALIGNED, UNALIGNED = BarrierHandling.ALIGNED, BarrierHandling.UNALIGNED


def test_checkpoints_overtake_and_savepoints_align_in_turn() -> None:
    it = OneStage("abc", UNALIGNED)
    for savepoint in (2, 4):
        it.trigger(savepoint, ALIGNED)
    for n in (1, 2, 3, 4):
        it.play(f"a#{n} a{n} b{n} b#{n} c#{n}")
    assert it.snapshots == [1, 2, 3, 4]
    assert it.states == {
        1: "",
        2: "a1 b1 b2",
        3: "a1 a2 b1 b2",
        4: "a1 a2 a3 b1 b2 b3 b4",
    }
    assert (it.in_flight(1), it.in_flight(3)) == ("b1", "b3")


def test_without_a_switch_the_snapshot_waits_for_all_barriers() -> None:
    it = OneStage()
    it.play("a#1 b1 b2")
    assert (it.snapshots, it.blocked) == ([], "a")
    it.play("b#1")
    assert it.states == {1: "b1 b2"}


def test_a_switch_lets_barriers_overtake_what_waits() -> None:
    it = OneStage()
    it.arrive("a1 a2 a#1 b1 b#1 b2")
    it.trigger(1, UNALIGNED)
    it.run()
    assert it.states == {1: ""}
    assert (it.in_flight(1), it.is_recorded(1)) == ("a1 a2 b1", True)
    assert it.seen == "a1 a2 b1 b2"


def test_a_switch_unblocks_inputs() -> None:
    it = OneStage("abc")
    it.play("c#1 c1 a1")
    assert (it.seen, it.blocked) == ("a1", "c")
    it.trigger(1, UNALIGNED)
    it.run()
    assert (it.seen, it.blocked, it.states) == ("a1 c1", "", {1: "a1"})
    it.play("b1 b#1 a#1")
    assert (it.in_flight(1), it.is_recorded(1)) == ("b1", True)


def test_a_switch_before_the_first_barrier_overtakes_with_it() -> None:
    it = OneStage()
    it.trigger(1, ALIGNED)
    it.trigger(1, UNALIGNED)
    it.run()
    assert it.snapshots == []
    it.arrive("b1 a1 a#1")
    it.run()
    assert (it.states, it.in_flight(1)) == ({1: ""}, "a1 b1")


def test_a_barrier_that_overtook_upstream_overtakes_here() -> None:
    it = OneStage("abc")
    it.play("a#1")
    assert it.blocked == "a"
    it.trigger(1, UNALIGNED)
    it.arrive("b1 b2 b#1")
    it.run()
    assert (it.states, it.in_flight(1)) == ({1: ""}, "b1 b2")
    assert not it.is_recorded(1)


def test_a_late_barrier_after_a_switch_closes_the_in_flight_data() -> None:
    it = OneStage()
    it.play("a#1 a1")
    it.trigger(1, UNALIGNED)
    it.play("b1 b#1 b2")
    assert it.snapshots == [1]
    assert (it.in_flight(1), it.is_recorded(1)) == ("b1", True)
    assert it.seen == "a1 b1 b2"


def test_an_open_input_keeps_the_recording_open() -> None:
    it = OneStage(handling=UNALIGNED)
    it.play("a#1")
    assert not it.is_recorded(1)


def test_a_switch_after_the_last_barrier_changes_nothing() -> None:
    it = OneStage()
    it.play("a#1 b1 b#1")
    it.trigger(1, UNALIGNED)
    it.play("a1 b2")
    assert it.states == {1: "b1"}


def test_an_abort_leaves_nothing_to_overtake() -> None:
    it = OneStage()
    it.play("a#1 a1 !1 b1 b#1")
    assert (it.snapshots, it.seen) == ([], "a1 b1")


def test_the_next_checkpoint_begins_aligned_again() -> None:
    it = OneStage()
    it.play("a#1")
    it.trigger(1, UNALIGNED)
    it.play("b1 b#1 a#2 a1 b2")
    assert (it.snapshots, it.blocked) == ([1], "a")
    it.trigger(2, UNALIGNED)
    it.play("b3 b#2")
    assert (it.states[2], it.in_flight(2)) == ("b1 b2", "b3")


def test_a_switch_while_an_ended_input_is_missing_overtakes() -> None:
    it = OneStage("abc")
    it.play("a#1 b1 b$")
    assert it.blocked == "a"
    it.trigger(1, UNALIGNED)
    it.play("c1 c$")
    assert (it.states, it.in_flight(1)) == ({1: "b1"}, "c1")
    it.play("b#1 c#1")
    assert it.is_recorded(1)


def test_an_end_between_barriers_does_not_disturb_the_alignment() -> None:
    it = OneStage("abc")
    it.play("a#1 b$ c1")
    assert (it.snapshots, it.blocked) == ([], "a")
    it.play("b#1 c#1")
    assert it.states == {1: "c1"}


def test_an_abort_that_comes_late_changes_nothing() -> None:
    it = OneStage()
    it.play("a#1 a#2 !1 b#2")
    assert it.snapshots == [2]


@pytest.mark.parametrize("handling", [ALIGNED, UNALIGNED])
def test_a_checkpoint_after_a_savepoint_overtakes_once_that_is_taken(
    handling: BarrierHandling,
) -> None:
    it = OneStage(handling=handling)
    it.trigger(1, ALIGNED)
    it.play("a#1 a1 a#2 a2 b1")
    it.trigger(2, UNALIGNED)
    it.run()
    assert (it.snapshots, it.blocked, it.seen) == ([], "a", "b1")
    it.arrive("b2 b#1 b3")
    it.run()
    assert it.states == {1: "b1 b2", 2: "b1 b2"}
    assert (it.in_flight(2), it.is_recorded(2)) == ("a1 b3", False)


def test_a_savepoint_after_a_checkpoint_is_aligned_while_that_is_still_recorded() -> None:
    it = OneStage(handling=UNALIGNED)
    it.trigger(2, ALIGNED)
    it.play("a#1 a1 a#2 a2 b1")
    assert (it.snapshots, it.blocked, it.seen) == ([1], "a", "a1 b1")
    assert (it.in_flight(1), it.is_recorded(1)) == ("b1", False)
    it.play("b#1 b2 b#2 b3")
    assert it.states == {1: "", 2: "a1 b1 b2"}
    assert (it.in_flight(1), it.is_recorded(1)) == ("b1", True)


def test_an_abort_of_the_checkpoint_leaves_the_savepoint_after_it_complete() -> None:
    it = OneStage(handling=UNALIGNED)
    it.trigger(2, ALIGNED)
    it.play("a1 a#1 b1 !1 a#2 a2 b#1 b2 b#2")
    assert it.states == {1: "a1", 2: "a1 b1 b2"}
    assert it.seen == "a1 a2 b1 b2"


def test_an_aborted_savepoint_blocks_nothing() -> None:
    it = OneStage(handling=UNALIGNED)
    it.trigger(1, ALIGNED)
    it.arrive("a#2 a1 b#1 b1")
    assert it.decide() == AlignmentDecision({}, CheckpointId(2), overtakes=True)
    it.run()
    assert (it.snapshots, it.blocked, it.seen) == ([2], "", "a1 b1")
