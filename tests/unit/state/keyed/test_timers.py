"""Timers of keys: once for each time, in the order of times, next to the state of their keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.event_time import MAX_WATERMARK, MIN_WATERMARK
from penstock.state.backends.refs import StagedName, StateLocation, StateRef
from penstock.state.backends.registry import create_state_backend
from penstock.state.delta import Delta
from penstock.state.key_groups import KeyGroupRange, key_group, routed_key
from penstock.state.keyed.states import KeyedStates
from penstock.state.keyed.timers import TimerTable
from penstock.state.keys import KeyCodec

GROUPS = 8
ALL = KeyGroupRange(0, GROUPS)
CODEC = KeyCodec(None, "step")
KEYS = ["a", "b", "c", "d", "a long key " * 40]


def routed(key: str) -> bytes:
    encoded = CODEC.encode(key)
    return routed_key(encoded, key_group(encoded, GROUPS))


class Subtask:
    """One subtask's timers, from micro-batch to micro-batch, in a store of its own."""

    def __init__(self, directory: Path) -> None:
        self._backend = create_state_backend("memory")
        self._place = StateLocation(directory, directory)
        self._ref = StateRef(version=0)
        self.first: int | None = None
        self.states = KeyedStates("step", CODEC)

    def begin(self) -> TimerTable:
        store = self._backend.open(self._place, self._ref)
        self.states.bind(store, [routed(key) for key in KEYS])
        table = self.states.get_timers("timers")
        table.expect(self.first)
        return table

    def end(self, table: TimerTable) -> Delta:
        self.first = table.first(ALL)
        delta = self.states.take_delta()
        batch = self._ref.version + 1
        name = StagedName("attempt", batch, 0, 0, 0)
        staged = self._backend.stage(self._place, delta, name, batch) if delta else None
        self._ref = self._backend.publish(self._ref, batch, staged)
        return delta


def fired(table: TimerTable, until: int) -> list[tuple[int, bytes, bytes]]:
    found = []
    while (timer := table.pop(until, ALL)) is not None:
        found.append(timer)
    return found


TIME = st.integers(-5, 12)
STEP = st.one_of(
    st.tuples(st.just("set"), st.integers(0, len(KEYS) - 1), TIME, st.sampled_from([b"", b"w"])),
    st.tuples(st.just("delete"), st.integers(0, len(KEYS) - 1), TIME, st.sampled_from([b"", b"w"])),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(STEP, max_size=8), TIME), max_size=6))
def test_timers_fire_as_a_sorted_set_would(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[list[tuple[str, int, int, bytes]], int]],
) -> None:
    subtask = Subtask(tmp_path_factory.mktemp("timers"))
    model: set[tuple[int, bytes, bytes]] = set()
    for steps, watermark in batches:
        table = subtask.begin()
        for what, number, time, namespace in steps:
            subtask.states.current = number
            timer = time, routed(KEYS[number]), namespace
            if what == "set":
                table.set(time, namespace)
                model.add(timer)
            else:
                table.delete(time, namespace)
                model.discard(timer)
        due = {timer for timer in model if timer[0] <= watermark}
        found = fired(table, watermark)
        assert set(found) == due
        assert len(found) == len(due)
        assert [t[0] for t in found] == sorted(t[0] for t in found)
        model -= due
        subtask.end(table)
        earliest = min((t[0] for t in model), default=None)
        # It may be too early, which costs an empty micro-batch, but never too late.
        assert (subtask.first is None) <= (earliest is None)
        assert earliest is None or (subtask.first is not None and subtask.first <= earliest)
    last = subtask.begin()
    assert set(fired(last, MAX_WATERMARK)) == model


def test_a_timer_that_is_set_while_others_fire_fires_too(tmp_path: Path) -> None:
    subtask = Subtask(tmp_path)
    table = subtask.begin()
    subtask.states.current = 0
    table.set(1)
    table.set(9)
    times = []
    while (timer := table.pop(9, ALL)) is not None:
        times.append(timer[0])
        if times == [1]:
            table.set(5)
            table.set(1)
            table.delete(9)
    assert times == [1, 1, 5]


def test_the_ends_of_time_are_times(tmp_path: Path) -> None:
    subtask = Subtask(tmp_path)
    table = subtask.begin()
    subtask.states.current = 2
    table.set(MAX_WATERMARK)
    table.set(MIN_WATERMARK)
    subtask.end(table)
    table = subtask.begin()
    assert [t[0] for t in fired(table, MIN_WATERMARK)] == [MIN_WATERMARK]
    subtask.end(table)
    assert subtask.first == MAX_WATERMARK
    table = subtask.begin()
    assert [t[0] for t in fired(table, MAX_WATERMARK)] == [MAX_WATERMARK]
    subtask.end(table)
    assert subtask.first is None


def test_a_timer_lies_in_the_store_as_it_always_did(tmp_path: Path) -> None:
    subtask = Subtask(tmp_path)
    table = subtask.begin()
    subtask.states.current = 0
    table.set(1_000, b"w")
    delta = subtask.end(table)
    group = routed("a")[:2].hex()
    (entry,) = (key for key in delta.keys if key[:2] != b"\0\0")
    assert entry.hex() == "0001" + group + "08" + "80000000000003e8" + routed("a")[2:].hex() + "77"


def test_only_the_key_groups_of_the_subtask_are_read(tmp_path: Path) -> None:
    subtask = Subtask(tmp_path)
    table = subtask.begin()
    for number in range(len(KEYS)):
        subtask.states.current = number
        table.set(number)
    subtask.end(table)
    found = []
    for group in range(GROUPS):
        table = subtask.begin()
        while (timer := table.pop(100, KeyGroupRange(group, group + 1))) is not None:
            found.append(timer)
    assert sorted(t[0] for t in found) == list(range(len(KEYS)))
