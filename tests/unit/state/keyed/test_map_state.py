from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.common import Types
from penstock.datastream.state import MapStateDescriptor
from penstock.state.backends.memory import MemoryBackend
from penstock.state.backends.refs import StagedName, StateLocation, StateRef
from penstock.state.key_groups import routed_key
from penstock.state.keyed.states import KeyedStates
from penstock.state.keys import KeyCodec

PLACE = StateLocation(Path("/nowhere"), Path("/nowhere"))
USERS = 3
MAP_KEYS = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.none() | st.integers(0, 9)


class MapMachine(RuleBasedStateMachine):
    """Compares a map state with a dict per key, across micro-batches and lost tries."""

    def __init__(self) -> None:
        super().__init__()
        self.backend = MemoryBackend()
        self.ref = StateRef(0)
        self.states = KeyedStates("step", KeyCodec())
        self.map = self.states.get_map_state(
            MapStateDescriptor("map", Types.STRING(), Types.LONG())
        )
        self.published: list[dict[str, Any]] = [{} for _ in range(USERS)]
        self.model: list[dict[str, Any]] = []

    @initialize()
    def bind(self) -> None:
        store = self.backend.open(PLACE, self.ref)
        self.states.bind(store, [routed_key(b"user%d" % user, user) for user in range(USERS)])
        self.states.current = 0
        self.model = [dict(entries) for entries in self.published]

    @property
    def current(self) -> dict[str, Any]:
        return self.model[self.states.current]

    @rule(user=st.integers(0, USERS - 1))
    def turn_to(self, user: int) -> None:
        self.states.current = user

    @rule(key=MAP_KEYS, value=VALUES)
    def put(self, key: str, value: Any) -> None:
        self.map.put(key, value)
        self.current[key] = value

    @rule(entries=st.dictionaries(MAP_KEYS, VALUES))
    def put_all(self, entries: dict[str, Any]) -> None:
        self.map.put_all(entries)
        self.current.update(entries)

    @rule(key=MAP_KEYS)
    def remove(self, key: str) -> None:
        del self.map[key]
        self.current.pop(key, None)

    @rule()
    def clear(self) -> None:
        self.map.clear()
        self.current.clear()

    @rule(key=MAP_KEYS)
    def look_up(self, key: str) -> None:
        assert self.map.get(key) == self.current.get(key)
        assert (key in self.map) == (key in self.current)

    @rule()
    def iterate(self) -> None:
        expected = sorted(self.current.items())
        assert list(self.map.items()) == expected
        assert list(self.map) == [key for key, _ in expected]
        assert list(self.map.values()) == [value for _, value in expected]

    @rule()
    def ask_whether_empty(self) -> None:
        assert self.map.is_empty() == (not self.current)

    @rule()
    def publish(self) -> None:
        version = self.ref.version + 1
        delta = self.states.take_delta()
        assert not set(delta.keys) & set(delta.deletes)
        staged = self.backend.stage(PLACE, delta, StagedName("a", version, 0, 0, 0), version)
        self.ref = self.backend.publish(self.ref, version, staged)
        self.published = self.model
        self.bind()

    @rule()
    def lose_the_try(self) -> None:
        self.bind()

    @invariant()
    def the_store_holds_what_was_published(self) -> None:
        with self.backend.open(PLACE, self.ref) as store:
            entries = sum(map(len, self.published))
            assert len(list(store.scan(b"\0\1"))) == entries


MapMachine.TestCase.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
TestMapState: type = MapMachine.TestCase


def bound(descriptor: MapStateDescriptor) -> Any:
    states = KeyedStates("step", KeyCodec())
    states.bind(MemoryBackend().open(PLACE, StateRef(0)), [routed_key(b"k", 0)])
    states.current = 0
    return states.get_map_state(descriptor)


def test_keys_of_three_classes_are_three_entries_in_an_untyped_map() -> None:
    state = bound(MapStateDescriptor("map"))
    state.put_all({"x": 0})
    for value, key in enumerate([1, 1.0, True, [1], None]):
        state.put(key, value)
    assert (state.get(1), state.get(1.0), state.get(True), state.get([1])) == (0, 1, 2, 3)


def test_a_typed_map_iterates_in_the_order_of_its_keys() -> None:
    state = bound(MapStateDescriptor("map", Types.LONG(), Types.LONG()))
    for key in (300, -5, 2, 0):
        state[key] = key
    assert list(state.keys()) == [-5, 0, 2, 300]


def test_writing_does_not_disturb_iteration() -> None:
    state = bound(MapStateDescriptor("map", Types.STRING(), Types.LONG()))
    state.put_all({"a": 1, "b": 2})
    for key in state:
        state.put(key + "x", 0)
        state.remove(key)
    assert list(state) == ["ax", "bx"]


def test_an_entry_written_after_clear_stays() -> None:
    machine = MapMachine()
    machine.bind()
    machine.put("a", 1)
    machine.put("b", 1)
    machine.publish()
    machine.clear()
    machine.put("a", 2)
    machine.publish()
    machine.iterate()
    machine.the_store_holds_what_was_published()
