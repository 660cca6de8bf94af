"""Maps that all subtasks of an operator hold alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Time, Types
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
)
from penstock.errors import (
    InvalidJobError,
    OperatorStateTooLargeError,
    OperatorStateTypeMismatchError,
    StateDeclaredTwiceError,
    UnstableKeyError,
)
from penstock.state.operator.broadcast_state import OperatorBroadcastState, ReadOnlyBroadcastView
from penstock.state.operator.states import OperatorStates, redistribute

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


def rules(version: bytes = b"") -> OperatorBroadcastState:
    return OperatorStates("apply", version).get_broadcast_state(RULES)


def version(entries: dict[str, int]) -> bytes:
    states = OperatorStates("apply")
    states.get_broadcast_state(RULES).put_all(entries)
    return states.encode()


def test_a_map_is_what_was_done_to_it() -> None:
    state = rules()
    assert state.is_empty()
    assert (state.get("a"), state.contains("a"), list(state)) == (None, False, [])
    state.put("b", 2)
    state.put_all({"c": 3, "a": 1})
    state["d"] = 4
    del state["c"]
    state.remove("nobody")
    assert list(state.items()) == [("a", 1), ("b", 2), ("d", 4)]
    assert (list(state.keys()), list(state.values())) == (["a", "b", "d"], [1, 2, 4])
    assert (state["b"], "b" in state, "c" in state) == (2, True, False)
    state.clear()
    assert state.is_empty()


def test_what_is_put_while_a_map_is_read_does_not_disturb_the_reading() -> None:
    state = rules()
    state.put_all({"a": 1, "b": 2})
    for key, value in state.items():
        state.put(key * 2, value)
        state.remove(key)
    assert list(state.items()) == [("aa", 1), ("bb", 2)]


@pytest.mark.parametrize(
    ("key_type", "value_type", "entries"),
    [
        (Types.STRING(), Types.LONG(), {"a": 1, "b": None}),
        (Types.TUPLE([Types.STRING(), Types.INT()]), Types.LIST(Types.DOUBLE()), {("a", 1): [0.5]}),
        (None, None, {1: {"any": object}, "1": None, 0.5: {1, 2}, None: b""}),
    ],
)
def test_entries_round_trip(
    key_type: TypeInformation | None, value_type: TypeInformation | None, entries: dict[Any, Any]
) -> None:
    descriptor = MapStateDescriptor("s", key_type, value_type)
    states = OperatorStates("apply")
    states.get_broadcast_state(descriptor).put_all(entries)
    again = OperatorStates("apply", states.encode()).get_broadcast_state(descriptor)
    assert dict(again.items()) == entries
    assert all(again.contains(key) for key in entries)


def test_keys_of_different_classes_are_different_keys() -> None:
    state = OperatorStates("apply").get_broadcast_state(MapStateDescriptor("s"))
    for key in (1, 1.0, True):
        state.put(key, repr(key))
    assert sorted(state.values()) == ["1", "1.0", "True"]


@given(st.lists(st.tuples(st.text(max_size=2), st.integers(0, 9))), st.randoms())
def test_equal_maps_are_equal_bytes_however_they_came_about(
    puts: list[tuple[str, int]], random: Any
) -> None:
    entries = dict(puts)
    one, other = OperatorStates("apply"), OperatorStates("apply")
    filled = one.get_broadcast_state(RULES)
    for key, value in puts:
        filled.put(key, value)
    shuffled = list(entries.items())
    random.shuffle(shuffled)
    other.get_broadcast_state(RULES).put_all(dict(shuffled))
    assert one.encode() == other.encode() == one.encode()
    assert list(rules(one.encode()).items()) == sorted(entries.items(), key=lambda e: e[0].encode())


def test_a_value_changed_in_place_is_stored_as_it_is_now() -> None:
    descriptor = MapStateDescriptor("s", Types.STRING(), Types.LIST(Types.LONG()))
    states = OperatorStates("apply")
    state = states.get_broadcast_state(descriptor)
    state.put("a", [1])
    first = states.encode()
    held = state.get("a")
    held.append(2)
    before, after = OperatorStates("apply", first), OperatorStates("apply", states.encode())
    assert before.get_broadcast_state(descriptor).get("a") == [1]
    assert after.get_broadcast_state(descriptor).get("a") == [1, 2]
    held.append("x")
    with pytest.raises(OperatorStateTypeMismatchError, match="operator state 's'"):
        states.encode()


def test_a_map_that_is_not_read_is_kept() -> None:
    states = OperatorStates("apply", version({"a": 1}))
    states.get_list_state(ListStateDescriptor("list", Types.LONG())).add(1)
    assert list(rules(states.encode()).items()) == [("a", 1)]


def test_a_value_of_another_type_is_rejected_and_changes_nothing() -> None:
    state: Any = rules()
    state.put("a", 1)
    with pytest.raises(OperatorStateTypeMismatchError, match=r"'apply', .* 'rules'.*\['b'\]"):
        state.put_all({"c": 3, "b": "x"})
    with pytest.raises(OperatorStateTypeMismatchError, match=r"\[7\]"):
        state.put(7, 1)
    with pytest.raises(OperatorStateTypeMismatchError):
        state.get(7)
    assert list(state.items()) == [("a", 1)]
    untyped = OperatorStates("apply").get_broadcast_state(MapStateDescriptor("s"))
    with pytest.raises(UnstableKeyError, match="'apply'"):
        untyped.put(object(), 1)


def test_a_map_too_large_to_travel_is_rejected_with_step_and_state() -> None:
    states = OperatorStates("apply", largest=100)
    states.get_broadcast_state(RULES).put_all({f"rule {n}": n for n in range(20)})
    with pytest.raises(OperatorStateTooLargeError, match="'apply': operator state 'rules'"):
        states.encode()


def test_another_type_or_kind_is_rejected_naming_both() -> None:
    stored = version({"a": 1})
    changed = MapStateDescriptor("rules", Types.STRING(), Types.STRING())
    for states in (OperatorStates("apply", stored), OperatorStates("apply")):
        if states.encode() != stored:
            states.get_broadcast_state(RULES)
        with pytest.raises(
            StateDeclaredTwiceError,
            match=r"broadcast state of MAP\(STRING, LONG\) .* of MAP\(STRING, STRING\)",
        ):
            states.get_broadcast_state(changed)
        with pytest.raises(StateDeclaredTwiceError, match=r"broadcast state of .* list state of"):
            states.get_list_state(ListStateDescriptor("rules", Types.LONG()))


def test_what_is_no_map_is_rejected() -> None:
    states = OperatorStates("apply")
    no_map: Any = ListStateDescriptor("s", Types.LONG())
    with pytest.raises(InvalidJobError, match="requested by a MapStateDescriptor"):
        states.get_broadcast_state(no_map)
    expiring = MapStateDescriptor("s", Types.LONG(), Types.LONG())
    expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    with pytest.raises(InvalidJobError, match="time-to-live"):
        states.get_broadcast_state(expiring)


def test_a_view_shows_the_map_as_it_is_now_and_changes_nothing() -> None:
    state = rules()
    view = ReadOnlyBroadcastView(state)
    assert view.is_empty()
    state.put("a", 1)
    assert list(view.items()) == [("a", 1)]
    assert (list(view), list(view.values()), view["a"], "a" in view) == (["a"], [1], 1, True)
    with pytest.raises(InvalidJobError, match=r"in process_broadcast_element\(\) only"):
        view.clear()
    assert not hasattr(view, "put")
    assert not hasattr(view, "remove")


@given(
    st.dictionaries(st.text(max_size=2), st.integers(0, 9)), st.integers(1, 4), st.integers(1, 5)
)
def test_another_parallelism_gives_the_whole_map_to_everyone(
    entries: dict[str, int], old: int, new: int
) -> None:
    whole = version(entries)
    assert redistribute([whole] * old, new) == [whole] * new


def test_a_subtask_without_state_gets_the_map_of_another() -> None:
    new = redistribute([b"", version({"a": 1})], 3)
    assert [dict(rules(v).items()) for v in new] == [{"a": 1}] * 3


def test_the_same_parallelism_leaves_every_map_where_it_was() -> None:
    old = [version({"a": n}) for n in range(3)]
    assert redistribute(old, 3) == old
