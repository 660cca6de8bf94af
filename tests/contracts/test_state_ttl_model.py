"""State with TTL compared with plain dicts, through reads, writes, restores and losses."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.datastream.state import StateTtlConfig
from penstock.state.local_dir import choose_local_dir
from tests.contracts.ttl_harness import (
    CONFIGS,
    SHOWN,
    SHOWN_ON_READ,
    TTL,
    World,
    elements,
    entries,
    reduced,
    summed,
    value,
)


@dataclass
class Model:
    """Flink's semantics of state TTL, in plain dicts of values with their timestamps."""

    on_read: bool
    shows: bool
    now: int = 0
    values: dict[Any, tuple[int, int]] = field(default_factory=dict)
    lists: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def alive(self, stamp: int) -> bool:
        return stamp + TTL > self.now

    def read(self, key: Any) -> int | None:
        if key not in self.values:
            return None
        stamp, held = self.values[key]
        if not self.alive(stamp):
            del self.values[key]
            return held if self.shows else None
        if self.on_read:
            self.write(key, held)
        return held

    def write(self, key: Any, held: int) -> None:
        self.values[key] = self.now, held

    def add(self, key: Any, more: int) -> None:
        stamp, held = self.values.get(key, (self.now, 0))
        self.write(key, (held if self.alive(stamp) or self.shows else 0) + more)

    def read_list(self, key: str) -> list[int]:
        held = self.lists.pop(key, [])
        alive = [(stamp, element) for stamp, element in held if self.alive(stamp)]
        if alive:
            kept = [(self.now, e) for _, e in alive] if self.on_read else held
            self.lists[key] = kept
        return [e for _, e in (held if self.shows else alive)]


KEYS = st.sampled_from(["a", "b"])
READS = st.tuples(st.sampled_from(["read", "read list", "entries"]), KEYS, st.just(0))
WRITES = st.tuples(st.sampled_from(["write", "add", "sum", "append"]), KEYS, st.integers(0, 99))
ENTRIES = st.tuples(st.sampled_from(["put", "get", "contains", "remove"]), KEYS, st.integers(0, 1))
CLEARS = st.tuples(st.just("clear"), KEYS, st.just(0))
PASSES = st.tuples(st.just("pass"), st.just(""), st.sampled_from([1, 49, 50, 50, 100, 100]))
MOVES = st.tuples(
    st.sampled_from(["new function", "rescale", "save", "compact", "lose"]), st.just(""), st.just(0)
)
OPERATIONS = st.lists(
    st.one_of(READS, READS, WRITES, WRITES, ENTRIES, PASSES, PASSES, CLEARS, MOVES),
    min_size=10,
    max_size=40,
)


@pytest.mark.parametrize("config", CONFIGS)
@settings(max_examples=100, deadline=None)
@given(operations=OPERATIONS)
def test_states_that_expire_are_as_the_model_says(
    config: str, operations: list[tuple[str, str, int]]
) -> None:
    _compare("memory", CONFIGS[config], operations)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@settings(max_examples=20, deadline=None)
@given(config=st.sampled_from(list(CONFIGS)), operations=OPERATIONS)
def test_stores_on_disk_are_as_the_model_says(
    backend: str, config: str, operations: list[tuple[str, str, int]]
) -> None:
    _compare(backend, CONFIGS[config], operations)


def _compare(backend: str, config: StateTtlConfig, operations: list[tuple[str, str, int]]) -> None:
    with tempfile.TemporaryDirectory(dir=choose_local_dir()) as path:
        _run(World(backend, Path(path)), config, operations)


def _run(world: World, config: StateTtlConfig, operations: list[tuple[str, str, int]]) -> None:
    model = Model(
        on_read=config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite,
        shows=config in (SHOWN, SHOWN_ON_READ),
        now=world.now,
    )
    states = _Declared(world, config)
    for what, key, number in operations:
        if what == "pass":
            world.now += number
            model.now += number
        elif key:
            (got,) = world.batch([key], partial(states.do, what, number))
            assert got == _expected(model, what, key, number), (what, key, number)
        elif what == "lose":
            world.batch(["a", "b"], states.touch_all, publish=False)
            states = _Declared(world, config)
        else:
            moves = {"rescale": world.rescale, "save": world.save, "compact": world.compact}
            moves.get(what, world.new_function)()
            states = _Declared(world, config)


class _Declared:
    def __init__(self, world: World, config: StateTtlConfig) -> None:
        states = world.new_function()
        self.value = states.get_state(value(config))
        self.list = states.get_list_state(elements(config))
        self.map = states.get_map_state(entries(config))
        self.reduced = states.get_reducing_state(reduced(config))
        self.summed = states.get_aggregating_state(summed(config))

    def touch_all(self) -> None:
        self.value.update(1000)
        self.list.get()
        self.map.clear()
        self.reduced.add(1000)

    def do(self, what: str, number: int) -> Any:
        match what:
            case "read":
                return self.value.value(), self.reduced.get(), self.summed.get()
            case "write":
                return self.value.update(number)
            case "add":
                return self.reduced.add(number)
            case "sum":
                return self.summed.add(number)
            case "clear":
                for state in (self.value, self.list, self.map):
                    state.clear()
                return None
            case "append":
                return self.list.add(number)
            case "read list":
                return self.list.get()
            case "entries":
                return sorted(self.map.items())
            case "put":
                return self.map.put(str(number), number)
            case "get":
                return self.map.get(str(number))
            case "contains":
                return self.map.contains(str(number))
            case "remove":
                return self.map.remove(str(number))
        raise AssertionError(what)


def _expected(model: Model, what: str, key: str, number: int) -> Any:
    match what:
        case "read":
            return tuple(model.read((kind, key)) for kind in ("value", "reduced", "summed"))
        case "write":
            return model.write(("value", key), number)
        case "add":
            return model.add(("reduced", key), number)
        case "sum":
            return model.add(("summed", key), number)
        case "clear":
            model.values.pop(("value", key), None)
            model.lists.pop(key, None)
            for entry in [e for e in model.values if e[:2] == ("map", key)]:
                del model.values[entry]
            return None
        case "append":
            return model.lists.setdefault(key, []).append((model.now, number))
        case "read list":
            return model.read_list(key)
        case "entries":
            there = sorted(e for e in model.values if e[:2] == ("map", key))
            found = [(e[2], model.read(e)) for e in there]
            return [(name, held) for name, held in found if held is not None]
        case "put":
            return model.write(("map", key, str(number)), number)
        case "get":
            return model.read(("map", key, str(number)))
        case "contains":
            return model.read(("map", key, str(number))) is not None
        case "remove":
            model.values.pop(("map", key, str(number)), None)
            return None
    raise AssertionError(what)
