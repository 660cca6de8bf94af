"""Where a micro-batch ends; the claims are those of Flink's tests of aligned checkpoints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.channel.log import END_OF_INPUT, Entry
from penstock.checkpoint.barriers.alignment import (
    AlignmentDecision,
    BarrierHandling,
    InputFacts,
    awaited_barrier,
    decide_alignment,
)
from penstock.ids import ChannelId, CheckpointId
from tests.unit.checkpoint.barriers.one_stage import PLENTY, b, data

A, B, C = ChannelId(0), ChannelId(1), ChannelId(2)
END = END_OF_INPUT


def aligned(*checkpoints: int) -> dict[CheckpointId, BarrierHandling]:
    return {CheckpointId(n): BarrierHandling.ALIGNED for n in checkpoints}


def decide(
    *inputs: list[Entry],
    live: tuple[int, ...] = (1, 2, 3),
    max_records: int = PLENTY,
    ended: str = "",
) -> AlignmentDecision:
    """Decide for inputs A, B, C; `ended` names those whose end was consumed before."""
    facts = {
        ChannelId(i): InputFacts(entries, has_ended="ABC"[i] in ended)
        for i, entries in enumerate(inputs)
    }
    return decide_alignment(facts, aligned(*live), max_records)


# -- without barriers ---------------------------------------------------------------------------


def test_nothing_waits_so_nothing_is_taken() -> None:
    assert decide([], []) == AlignmentDecision({})


def test_without_a_barrier_no_input_is_blocked() -> None:
    taken = decide([data(), data()], [data()], live=())
    assert taken == AlignmentDecision({A: 2, B: 1})


def test_an_empty_input_does_not_keep_the_others_back() -> None:
    assert decide([data()], [], [data()]) == AlignmentDecision({A: 1, C: 1})


# -- one input ----------------------------------------------------------------------------------


def test_one_input_takes_a_snapshot_at_every_barrier_and_is_never_blocked() -> None:
    entries = [data(), b(1), data(), data(), b(2)]
    first = decide(entries)
    assert first == AlignmentDecision({A: 2}, CheckpointId(1))
    assert decide(entries[2:], live=(2, 3)) == AlignmentDecision({A: 3}, CheckpointId(2))


def test_a_barrier_without_data_ends_a_micro_batch_of_its_own() -> None:
    assert decide([b(1), data()]) == AlignmentDecision({A: 1}, CheckpointId(1))


def test_two_barriers_in_a_row_are_two_snapshots() -> None:
    assert decide([b(1), b(2)]) == AlignmentDecision({A: 1}, CheckpointId(1))


# -- several inputs -----------------------------------------------------------------------------


def test_nothing_is_taken_from_a_blocked_input_while_the_others_continue() -> None:
    taken = decide([b(1), data(), data()], [data()])
    assert taken == AlignmentDecision({B: 1}, None, blocked={A: CheckpointId(1)})


def test_an_input_is_taken_up_to_its_barrier_before_it_is_blocked() -> None:
    assert decide([data(), b(1), data()], [data()]) == AlignmentDecision({A: 1, B: 1})


def test_when_only_blocked_inputs_have_entries_nothing_is_taken() -> None:
    taken = decide([b(1), data()], [])
    assert taken == AlignmentDecision({}, blocked={A: CheckpointId(1)})


def test_the_last_barrier_ends_all_inputs_in_the_same_micro_batch() -> None:
    taken = decide([b(1), data()], [data(), b(1), data()], [b(1)])
    assert taken == AlignmentDecision({A: 1, B: 2, C: 1}, CheckpointId(1))


def test_a_barrier_in_sight_is_not_yet_reached() -> None:
    # B's data before the barrier does not fit into one micro-batch: A stays blocked meanwhile.
    taken = decide([b(1), data()], [data(6), data(6), b(1)], max_records=10)
    assert taken == AlignmentDecision({B: 1}, None, blocked={A: CheckpointId(1)})


def test_data_that_fits_exactly_reaches_the_barrier() -> None:
    taken = decide([b(1)], [data(4), data(6), b(1), data(1)], max_records=10)
    assert taken == AlignmentDecision({A: 1, B: 3}, CheckpointId(1))


def test_a_forward_input_reaches_its_barrier_one_entry_at_a_time() -> None:
    facts = {
        A: InputFacts([data(), data(), b(1)], max_entries=1),
        B: InputFacts([b(1), data()]),
    }
    assert decide_alignment(facts, aligned(1), PLENTY) == AlignmentDecision(
        {A: 1}, blocked={B: CheckpointId(1)}
    )
    facts[A] = InputFacts([data(), b(1), data()], max_entries=1)
    assert decide_alignment(facts, aligned(1), PLENTY) == AlignmentDecision(
        {A: 2, B: 1}, CheckpointId(1)
    )


# -- several checkpoints ------------------------------------------------------------------------


def test_of_several_checkpoints_in_flight_the_lowest_comes_first() -> None:
    taken = decide([b(1), data(), b(2), b(3)], [b(1), data(), b(2)])
    assert taken == AlignmentDecision({A: 1, B: 1}, CheckpointId(1))


def test_an_input_is_blocked_at_its_first_barrier_however_many_follow() -> None:
    taken = decide([b(1), b(2), data()], [data()])
    assert taken == AlignmentDecision({B: 1}, blocked={A: CheckpointId(1)})


@pytest.mark.parametrize("ahead", [[b(2)], [b(2), data(), b(3)]])
def test_a_higher_barrier_first_means_that_the_lower_one_never_comes(ahead: list[Entry]) -> None:
    taken = decide([b(1), data(), b(2), data()], ahead)
    assert taken == AlignmentDecision({A: 3, B: 1}, CheckpointId(2))


def test_a_skipped_barrier_unblocks_the_input_that_waited_for_it() -> None:
    waiting = decide([b(1), data()], [data()])
    assert waiting.blocked == {A: CheckpointId(1)}
    assert decide([b(1), data()], [b(2)]) == AlignmentDecision({A: 2}, blocked={B: CheckpointId(2)})


def test_a_lower_barrier_that_comes_late_is_skipped() -> None:
    assert decide([b(2), data()], [data(), b(1), data()]) == AlignmentDecision(
        {B: 3}, blocked={A: CheckpointId(2)}
    )


def test_a_checkpoint_that_the_stage_has_passed_blocks_nothing_any_more() -> None:
    facts = {A: InputFacts([data(), b(1), data(), b(2)]), B: InputFacts([b(1), data()])}
    taken = decide_alignment(facts, aligned(1, 2), PLENTY, passed=CheckpointId(1))
    assert taken == AlignmentDecision({A: 3, B: 2})


def test_a_barrier_that_one_input_has_consumed_blocks_the_others_no_longer() -> None:
    # Its checkpoint was triggered, and its barrier came, after the live ones were read.
    facts = {A: InputFacts([data()], passed=CheckpointId(1)), B: InputFacts([b(1), data()])}
    assert decide_alignment(facts, aligned(1), PLENTY) == AlignmentDecision({A: 1, B: 2})


def test_three_inputs_agree_on_the_highest_first_barrier() -> None:
    inputs = ([b(1), b(2), b(3)], [b(2), b(3)], [b(3)])
    assert decide(*inputs) == AlignmentDecision({A: 3, B: 2, C: 1}, CheckpointId(3))


# -- aborted checkpoints ------------------------------------------------------------------------


def test_a_barrier_of_an_aborted_checkpoint_blocks_nothing() -> None:
    assert decide([b(1), data()], [data(), b(1)], live=()) == AlignmentDecision({A: 2, B: 2})


def test_an_abort_unblocks_the_input() -> None:
    entries = [b(1), data(), b(2)], [data()]
    assert decide(*entries, live=(1, 2)).blocked == {A: CheckpointId(1)}
    assert decide(*entries, live=(2,)) == AlignmentDecision({A: 2, B: 1})


def test_after_an_abort_the_next_live_checkpoint_is_aligned() -> None:
    taken = decide([b(1), data(), b(2)], [b(1), b(2), data()], live=(2,))
    assert taken == AlignmentDecision({A: 3, B: 2}, CheckpointId(2))


def test_an_aborted_barrier_alone_is_consumed_and_never_forwarded() -> None:
    assert decide([b(1)], [], live=()) == AlignmentDecision({A: 1})


# -- the end of input ---------------------------------------------------------------------------


def test_the_end_is_reached_with_the_last_input_and_not_before() -> None:
    assert not decide([data(), END], [data()]).end_of_input
    assert decide([], [data(), END], ended="A").end_of_input
    assert decide([END], [data(), END]).end_of_input


def test_the_end_of_input_comes_once() -> None:
    assert not decide([b(1)], [b(1)], ended="AB").end_of_input


def test_an_end_after_a_barrier_belongs_to_a_later_micro_batch() -> None:
    taken = decide([data(), b(1), END], ended="")
    assert taken == AlignmentDecision({A: 2}, CheckpointId(1), end_of_input=False)


def test_end_and_barrier_may_come_in_one_micro_batch_the_end_first() -> None:
    taken = decide([data(), END, b(1)], [b(1)], ended="B")
    assert taken == AlignmentDecision({A: 3, B: 1}, CheckpointId(1), end_of_input=True)


def test_an_input_that_has_ended_still_delays_the_snapshot_until_its_barrier_comes() -> None:
    assert decide([], [b(1), data()], ended="A") == AlignmentDecision(
        {}, blocked={B: CheckpointId(1)}
    )
    assert decide([b(1)], [b(1), data()], ended="A") == AlignmentDecision(
        {A: 1, B: 1}, CheckpointId(1)
    )


def test_an_input_that_ended_is_blocked_at_its_barrier_like_any_other() -> None:
    assert decide([END, b(1), b(2)], [data()]) == AlignmentDecision({A: 1, B: 1})
    assert decide([b(1), b(2)], [data()], ended="A") == AlignmentDecision(
        {B: 1}, blocked={A: CheckpointId(1)}
    )


# -- any inputs ---------------------------------------------------------------------------------

CHECKPOINTS = st.integers(1, 4)


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """One input as producers make it: barriers ascend, an end may be anywhere."""
    ids = sorted(draw(st.sets(CHECKPOINTS)))
    entries: list[Entry] = []
    for n in ids:
        entries += [data(rows) for rows in draw(st.lists(st.integers(1, 8), max_size=3))]
        entries.append(b(n))
    entries += [data(rows) for rows in draw(st.lists(st.integers(1, 8), max_size=2))]
    return entries


@given(st.lists(logs(), min_size=1, max_size=3), st.sets(CHECKPOINTS), st.integers(1, 20))
def test_nothing_is_taken_after_a_barrier_that_other_inputs_have_not_reached(
    inputs: list[list[Entry]], live: set[int], most: int
) -> None:
    alive = tuple(sorted(live))
    made = decide(*inputs, live=alive, max_records=most)
    facts = {ChannelId(i): InputFacts(entries) for i, entries in enumerate(inputs)}
    target = awaited_barrier(facts, aligned(*alive))
    for i, entries in enumerate(inputs):
        taken = entries[: made.take.get(ChannelId(i), 0)]
        ids = [e.checkpoint for e in taken if e.checkpoint in live]
        if made.barrier is not None:
            assert taken[-1].checkpoint == made.barrier == max(filter(None, ids))
        elif target is not None:
            assert all(n is not None and n < target for n in ids)
        else:
            assert ids == []


@given(st.lists(logs(), min_size=1, max_size=3), st.sets(CHECKPOINTS), st.integers(1, 20))
def test_something_is_taken_unless_every_input_is_blocked_or_empty(
    inputs: list[list[Entry]], live: set[int], most: int
) -> None:
    made = decide(*inputs, live=tuple(sorted(live)), max_records=most)
    idle = [entries for i, entries in enumerate(inputs) if ChannelId(i) not in made.blocked]
    assert bool(made.take) == any(idle)
