from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Time, Types
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.state import (
    ListStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.errors import (
    InvalidJobError,
    OperatorStateTooLargeError,
    OperatorStateTypeMismatchError,
    StateDeclaredTwiceError,
    StateTooLargeError,
)
from penstock.state.operator.states import OperatorStates, redistribute

NUMBERS = ListStateDescriptor("numbers", Types.LONG())
TEXTS = ListStateDescriptor("texts", Types.STRING())


def version(numbers: list[int], shared: list[str] | None = None) -> bytes:
    """What a subtask leaves that keeps a list and, perhaps, a union list."""
    states = OperatorStates("buffer")
    states.get_list_state(NUMBERS).update(numbers)
    if shared is not None:
        states.get_union_list_state(TEXTS).update(shared)
    return states.encode()


def numbers_in(data: bytes) -> list[int]:
    return OperatorStates("buffer", data).get_list_state(NUMBERS).get()


def texts_in(data: bytes) -> list[str]:
    return OperatorStates("buffer", data).get_union_list_state(TEXTS).get()


def test_a_list_is_what_was_done_to_it() -> None:
    state = OperatorStates("buffer").get_list_state(NUMBERS)
    assert state.get() == []
    state.add(1)
    state.add_all([2, 3])
    assert state.get() == list(state) == [1, 2, 3]
    state.update([4])
    assert state.get() == [4]
    state.clear()
    assert state.get() == []


def test_what_get_returned_is_not_the_list_itself() -> None:
    state = OperatorStates("buffer").get_list_state(NUMBERS)
    state.add(1)
    state.get().append(2)
    assert state.get() == [1]


def test_a_list_filled_from_itself_is_not_lost() -> None:
    state = OperatorStates("buffer").get_list_state(NUMBERS)
    state.add_all([1, 2])
    state.add_all(state)
    state.update(n + 1 for n in state)
    assert state.get() == [2, 3, 2, 3]


@pytest.mark.parametrize(
    ("element_type", "elements"),
    [
        (Types.LONG(), [1, -(2**40)]),
        (Types.TUPLE([Types.STRING(), Types.INT()]), [("a", 1), ("b", 2)]),
        (Types.LIST(Types.DOUBLE()), [[], [0.5]]),
        (None, [{"any": object}, None, {1, 2}]),
    ],
)
def test_elements_round_trip(element_type: TypeInformation | None, elements: list[Any]) -> None:
    descriptor = ListStateDescriptor("s", element_type)
    states = OperatorStates("buffer")
    states.get_list_state(descriptor).add_all(elements)
    assert OperatorStates("buffer", states.encode()).get_list_state(descriptor).get() == elements


def test_the_same_lists_are_the_same_bytes_whatever_the_order_of_asking() -> None:
    one, other = OperatorStates("buffer"), OperatorStates("buffer")
    one.get_list_state(NUMBERS).add(1)
    one.get_list_state(TEXTS).add("a")
    other.get_list_state(TEXTS).add("a")
    other.get_list_state(NUMBERS).add(1)
    assert one.encode() == other.encode() == one.encode()


def test_an_element_that_was_changed_in_place_is_stored_as_it_is_now() -> None:
    descriptor = ListStateDescriptor("s", Types.LIST(Types.LONG()))
    states = OperatorStates("buffer")
    state = states.get_list_state(descriptor)
    state.add([1])
    first = states.encode()
    state.get()[0].append(2)
    assert OperatorStates("buffer", first).get_list_state(descriptor).get() == [[1]]
    assert OperatorStates("buffer", states.encode()).get_list_state(descriptor).get() == [[1, 2]]


def test_a_list_that_is_no_longer_declared_is_kept() -> None:
    states = OperatorStates("buffer", version([1, 2], ["a"]))
    states.get_union_list_state(TEXTS).clear()
    data = states.encode()
    assert numbers_in(data) == [1, 2]
    assert texts_in(data) == []


def test_a_list_is_the_same_object_for_every_request() -> None:
    states = OperatorStates("buffer")
    assert states.get_list_state(NUMBERS) is states.get_list_state(NUMBERS)


def test_another_type_is_rejected_naming_both() -> None:
    changed = ListStateDescriptor("numbers", Types.STRING())
    stored = OperatorStates("buffer", version([1]))
    with pytest.raises(StateDeclaredTwiceError, match=r"'numbers'.* of LONG .* of STRING"):
        stored.get_list_state(changed)
    asked = OperatorStates("buffer")
    asked.get_list_state(NUMBERS)
    with pytest.raises(StateDeclaredTwiceError, match=r"'numbers'.* of LONG .* of STRING"):
        asked.get_list_state(changed)


def test_another_distribution_is_rejected_naming_both() -> None:
    states = OperatorStates("buffer", version([]))
    with pytest.raises(StateDeclaredTwiceError, match=r"declared as list .* as union list"):
        states.get_union_list_state(NUMBERS)


def test_an_element_of_another_type_is_rejected_and_changes_nothing() -> None:
    state = OperatorStates("buffer").get_list_state(NUMBERS)
    state.add(1)
    wrong: Any = ["x"]
    with pytest.raises(OperatorStateTypeMismatchError, match="'buffer', operator state 'numbers'"):
        state.add_all([2, *wrong])
    with pytest.raises(OperatorStateTypeMismatchError):
        state.update(wrong)
    assert state.get() == [1]


def test_an_element_changed_in_place_to_another_type_is_rejected() -> None:
    states = OperatorStates("buffer")
    held: list[Any] = [1]
    states.get_list_state(ListStateDescriptor("s", Types.LIST(Types.LONG()))).add(held)
    held.append("x")
    with pytest.raises(OperatorStateTypeMismatchError, match="operator state 's'"):
        states.encode()


def test_a_list_too_large_to_travel_is_rejected_with_step_and_state() -> None:
    states = OperatorStates("buffer", largest=100)
    states.get_list_state(NUMBERS).add(1)
    states.get_list_state(TEXTS).add("x" * 98)
    states.encode()
    states.get_list_state(TEXTS).add("y")
    with pytest.raises(OperatorStateTooLargeError, match=r"'buffer': operator state 'texts' .*102"):
        states.encode()
    assert issubclass(OperatorStateTooLargeError, StateTooLargeError)


def test_what_is_no_list_is_rejected() -> None:
    states = OperatorStates("buffer")
    no_list: Any = ValueStateDescriptor("s", Types.LONG())
    with pytest.raises(InvalidJobError, match="ListStateDescriptor"):
        states.get_list_state(no_list)
    expiring = ListStateDescriptor("s", Types.LONG())
    expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    with pytest.raises(InvalidJobError, match="time-to-live"):
        states.get_list_state(expiring)


subtasks = st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=5)


@given(subtasks, st.integers(1, 6))
def test_a_new_parallelism_loses_no_element_and_doubles_none(
    old: list[list[int]], parallelism: int
) -> None:
    new = [numbers_in(v) for v in redistribute([version(n) for n in old], parallelism)]
    assert len(new) == parallelism
    assert list(chain(*new)) == list(chain(*old))
    if len(old) != parallelism:
        assert max(map(len, new)) - min(map(len, new)) <= 1


@given(subtasks)
def test_the_same_parallelism_leaves_every_list_where_it_was(old: list[list[int]]) -> None:
    versions = [version(numbers) for numbers in old]
    assert redistribute(versions, len(versions)) == versions


@given(
    st.lists(st.lists(st.text(max_size=3), max_size=3), min_size=1, max_size=4),
    st.integers(1, 5),
)
def test_a_union_gives_everything_to_everyone(old: list[list[str]], parallelism: int) -> None:
    new = redistribute([version([7], shared) for shared in old], parallelism)
    assert [texts_in(v) for v in new] == [list(chain(*old))] * parallelism
    assert [n for v in new for n in numbers_in(v)] == [7] * len(old)


def test_subtasks_without_state_and_lists_of_some_subtasks_are_redistributed() -> None:
    new = redistribute([b"", version([1]), version([2], ["a"])], 2)
    assert [numbers_in(v) for v in new] == [[1], [2]]
    assert [texts_in(v) for v in new] == [["a"], ["a"]]
    assert [numbers_in(v) for v in redistribute([b""], 2)] == [[], []]


def test_subtasks_that_disagree_about_a_list_are_rejected_naming_both() -> None:
    other = OperatorStates("buffer")
    other.get_list_state(ListStateDescriptor("numbers", Types.STRING())).add("a")
    with pytest.raises(StateDeclaredTwiceError, match=r"'buffer'.* of LONG .* of STRING"):
        redistribute([version([1]), other.encode()], 3, step="buffer")
