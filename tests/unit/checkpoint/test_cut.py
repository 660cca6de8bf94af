"""Where a micro-batch ends; the claims are those of Flink's tests of aligned checkpoints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.channel.log import END_OF_INPUT, Entry
from penstock.checkpoint.cut import Cut, InputFacts, Passing, awaited, decide_cut
from penstock.ids import ChannelId, CheckpointId
from tests.unit.checkpoint.one_stage import PLENTY, b, data

A, B, C = ChannelId(0), ChannelId(1), ChannelId(2)
END = END_OF_INPUT


def aligned(*checkpoints: int) -> dict[CheckpointId, Passing]:
    return {CheckpointId(n): Passing.ALIGNED for n in checkpoints}


def cut(
    *inputs: list[Entry], live: tuple[int, ...] = (1, 2, 3), most: int = PLENTY, ended: str = ""
) -> Cut:
    """Decide for inputs A, B, C; `ended` names those whose end was consumed before."""
    facts = {
        ChannelId(i): InputFacts(entries, has_ended="ABC"[i] in ended)
        for i, entries in enumerate(inputs)
    }
    return decide_cut(facts, aligned(*live), most)


# -- without barriers ---------------------------------------------------------------------------


def test_nothing_waits_so_nothing_is_taken() -> None:
    assert cut([], []) == Cut({})


def test_without_a_barrier_no_input_is_held() -> None:
    taken = cut([data(), data()], [data()], live=())
    assert taken == Cut({A: 2, B: 1})


def test_an_empty_input_does_not_keep_the_others_back() -> None:
    assert cut([data()], [], [data()]) == Cut({A: 1, C: 1})


# -- one input ----------------------------------------------------------------------------------


def test_one_input_is_cut_at_every_barrier_and_never_held() -> None:
    entries = [data(), b(1), data(), data(), b(2)]
    first = cut(entries)
    assert first == Cut({A: 2}, CheckpointId(1))
    assert cut(entries[2:], live=(2, 3)) == Cut({A: 3}, CheckpointId(2))


def test_a_barrier_without_data_ends_a_micro_batch_of_its_own() -> None:
    assert cut([b(1), data()]) == Cut({A: 1}, CheckpointId(1))


def test_two_barriers_in_a_row_are_two_cuts() -> None:
    assert cut([b(1), b(2)]) == Cut({A: 1}, CheckpointId(1))


# -- several inputs -----------------------------------------------------------------------------


def test_a_held_input_gives_nothing_while_the_others_go_on() -> None:
    taken = cut([b(1), data(), data()], [data()])
    assert taken == Cut({B: 1}, None, held={A: CheckpointId(1)})


def test_an_input_is_taken_up_to_its_barrier_before_it_is_held() -> None:
    assert cut([data(), b(1), data()], [data()]) == Cut({A: 1, B: 1})


def test_when_only_held_inputs_have_entries_nothing_is_taken() -> None:
    taken = cut([b(1), data()], [])
    assert taken == Cut({}, held={A: CheckpointId(1)})


def test_the_last_barrier_cuts_all_inputs_in_the_same_micro_batch() -> None:
    taken = cut([b(1), data()], [data(), b(1), data()], [b(1)])
    assert taken == Cut({A: 1, B: 2, C: 1}, CheckpointId(1))


def test_a_barrier_in_sight_is_not_yet_reached() -> None:
    # B's data before the barrier does not fit into one micro-batch: A stays held meanwhile.
    taken = cut([b(1), data()], [data(6), data(6), b(1)], most=10)
    assert taken == Cut({B: 1}, None, held={A: CheckpointId(1)})


def test_data_that_fits_exactly_reaches_the_barrier() -> None:
    taken = cut([b(1)], [data(4), data(6), b(1), data(1)], most=10)
    assert taken == Cut({A: 1, B: 3}, CheckpointId(1))


def test_a_forward_input_reaches_its_barrier_one_entry_at_a_time() -> None:
    facts = {
        A: InputFacts([data(), data(), b(1)], most=1),
        B: InputFacts([b(1), data()]),
    }
    assert decide_cut(facts, aligned(1), PLENTY) == Cut({A: 1}, held={B: CheckpointId(1)})
    facts[A] = InputFacts([data(), b(1), data()], most=1)
    assert decide_cut(facts, aligned(1), PLENTY) == Cut({A: 2, B: 1}, CheckpointId(1))


# -- several checkpoints ------------------------------------------------------------------------


def test_of_several_checkpoints_in_flight_the_lowest_comes_first() -> None:
    taken = cut([b(1), data(), b(2), b(3)], [b(1), data(), b(2)])
    assert taken == Cut({A: 1, B: 1}, CheckpointId(1))


def test_an_input_is_held_at_its_first_barrier_however_many_wait_behind() -> None:
    taken = cut([b(1), b(2), data()], [data()])
    assert taken == Cut({B: 1}, held={A: CheckpointId(1)})


@pytest.mark.parametrize("ahead", [[b(2)], [b(2), data(), b(3)]])
def test_a_higher_barrier_first_means_that_the_lower_one_is_gone(ahead: list[Entry]) -> None:
    taken = cut([b(1), data(), b(2), data()], ahead)
    assert taken == Cut({A: 3, B: 1}, CheckpointId(2))


def test_a_jump_releases_the_input_that_waited_for_the_lower_one() -> None:
    waiting = cut([b(1), data()], [data()])
    assert waiting.held == {A: CheckpointId(1)}
    assert cut([b(1), data()], [b(2)]) == Cut({A: 2}, held={B: CheckpointId(2)})


def test_a_lower_barrier_that_comes_late_is_passed_over() -> None:
    assert cut([b(2), data()], [data(), b(1), data()]) == Cut({B: 3}, held={A: CheckpointId(2)})


def test_a_checkpoint_the_stage_took_part_in_holds_and_cuts_nothing_any_more() -> None:
    facts = {A: InputFacts([data(), b(1), data(), b(2)]), B: InputFacts([b(1), data()])}
    taken = decide_cut(facts, aligned(1, 2), PLENTY, passed=CheckpointId(1))
    assert taken == Cut({A: 3, B: 2})


def test_a_barrier_that_one_input_has_let_go_by_holds_the_others_no_longer() -> None:
    # Its checkpoint was triggered, and its barrier came, after the live ones had been looked at.
    facts = {A: InputFacts([data()], passed=CheckpointId(1)), B: InputFacts([b(1), data()])}
    assert decide_cut(facts, aligned(1), PLENTY) == Cut({A: 1, B: 2})


def test_three_inputs_agree_on_the_highest_first_barrier() -> None:
    inputs = ([b(1), b(2), b(3)], [b(2), b(3)], [b(3)])
    assert cut(*inputs) == Cut({A: 3, B: 2, C: 1}, CheckpointId(3))


# -- aborted checkpoints ------------------------------------------------------------------------


def test_a_barrier_of_an_aborted_checkpoint_holds_nothing_and_cuts_nothing() -> None:
    assert cut([b(1), data()], [data(), b(1)], live=()) == Cut({A: 2, B: 2})


def test_an_abort_releases_the_input_that_was_held() -> None:
    entries = [b(1), data(), b(2)], [data()]
    assert cut(*entries, live=(1, 2)).held == {A: CheckpointId(1)}
    assert cut(*entries, live=(2,)) == Cut({A: 2, B: 1})


def test_an_abort_moves_the_cut_to_the_next_live_checkpoint() -> None:
    taken = cut([b(1), data(), b(2)], [b(1), b(2), data()], live=(2,))
    assert taken == Cut({A: 3, B: 2}, CheckpointId(2))


def test_an_aborted_barrier_alone_is_consumed_and_forwarded_by_nobody() -> None:
    assert cut([b(1)], [], live=()) == Cut({A: 1})


# -- the end of input ---------------------------------------------------------------------------


def test_the_end_is_reached_with_the_last_input_and_not_before() -> None:
    assert not cut([data(), END], [data()]).end_of_input
    assert cut([], [data(), END], ended="A").end_of_input
    assert cut([END], [data(), END]).end_of_input


def test_the_end_is_told_once() -> None:
    assert not cut([b(1)], [b(1)], ended="AB").end_of_input


def test_an_end_behind_a_barrier_belongs_to_a_later_micro_batch() -> None:
    taken = cut([data(), b(1), END], ended="")
    assert taken == Cut({A: 2}, CheckpointId(1), end_of_input=False)


def test_end_and_barrier_may_come_in_one_micro_batch_the_end_first() -> None:
    taken = cut([data(), END, b(1)], [b(1)], ended="B")
    assert taken == Cut({A: 3, B: 1}, CheckpointId(1), end_of_input=True)


def test_an_input_that_has_ended_still_holds_the_cut_back_until_its_barrier_comes() -> None:
    assert cut([], [b(1), data()], ended="A") == Cut({}, held={B: CheckpointId(1)})
    assert cut([b(1)], [b(1), data()], ended="A") == Cut({A: 1, B: 1}, CheckpointId(1))


def test_an_input_that_ended_is_held_at_its_barrier_like_any_other() -> None:
    assert cut([END, b(1), b(2)], [data()]) == Cut({A: 1, B: 1})
    assert cut([b(1), b(2)], [data()], ended="A") == Cut({B: 1}, held={A: CheckpointId(1)})


# -- any inputs ---------------------------------------------------------------------------------

CHECKPOINTS = st.integers(1, 4)


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """One input as producers make it: barriers ascend, an end may stand anywhere."""
    ids = sorted(draw(st.sets(CHECKPOINTS)))
    entries: list[Entry] = []
    for n in ids:
        entries += [data(rows) for rows in draw(st.lists(st.integers(1, 8), max_size=3))]
        entries.append(b(n))
    entries += [data(rows) for rows in draw(st.lists(st.integers(1, 8), max_size=2))]
    return entries


@given(st.lists(logs(), min_size=1, max_size=3), st.sets(CHECKPOINTS), st.integers(1, 20))
def test_no_input_gives_anything_behind_a_barrier_the_others_have_not_reached(
    inputs: list[list[Entry]], live: set[int], most: int
) -> None:
    alive = tuple(sorted(live))
    made = cut(*inputs, live=alive, most=most)
    facts = {ChannelId(i): InputFacts(entries) for i, entries in enumerate(inputs)}
    target = awaited(facts, aligned(*alive))
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
def test_something_is_taken_unless_every_input_is_held_or_empty(
    inputs: list[list[Entry]], live: set[int], most: int
) -> None:
    made = cut(*inputs, live=tuple(sorted(live)), most=most)
    idle = [entries for i, entries in enumerate(inputs) if ChannelId(i) not in made.held]
    assert bool(made.take) == any(idle)
