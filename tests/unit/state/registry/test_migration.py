"""State whose declared type changed between two runs of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, TypeInformation, Types
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.errors import StateTypeChangedError
from penstock.state.backends.memory import MemoryBackend
from penstock.state.backends.refs import StagedName, StateLocation, StateRef
from penstock.state.backends.registry import create_state_backend
from penstock.state.backends.store import StateStore
from penstock.state.delta import Delta
from penstock.state.key_groups import KeyGroupRange, key_group, routed_key
from penstock.state.keyed.states import KeyedStates
from penstock.state.keys import KeyCodec
from penstock.state.registry.meta_info import StateMetaInfo, read_registry
from penstock.state.registry.migration import later_of, rewriter
from penstock.types.compatibility import Incompatible

OLD = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
NEW = Types.ROW_NAMED(["n", "name", "more"], [Types.DOUBLE(), Types.STRING(), Types.LONG()])

Work = Callable[[KeyedStates], Any]


class Runs:
    """Runs micro-batches, each in a new process as it were."""

    def __init__(self, directory: Path, backend: str = "memory") -> None:
        self.place = StateLocation(directory / "shared", directory / "local")
        self.backend = create_state_backend(backend, "count")
        self.ref = StateRef(0)

    def open(self) -> StateStore:
        return self.backend.open(self.place, self.ref)

    def run(
        self,
        keys: Sequence[str],
        declare: Work,
        each: Callable[[Any], Any],
        *,
        publish: bool = True,
    ) -> tuple[list[Any], Delta]:
        states = KeyedStates("count", KeyCodec(Types.STRING(), "count"))
        encoded = [states.codec.encode(key) for key in keys]
        with self.open() as store:
            states.bind(store, [routed_key(key, key_group(key, 128)) for key in encoded])
            state = declare(states)
            results = []
            for states.current in range(len(keys)):
                results.append(each(state))
            delta = states.take_delta()
            assert len(states.take_delta()) == 0
        assert delta.keys == sorted(set(delta.keys))
        version = self.ref.version + 1
        name = StagedName("a", version, 0, 0, 0)
        staged = self.backend.stage(self.place, delta, name, version) if publish else None
        if publish:
            self.ref = self.backend.publish(self.ref, version, staged)
        return results, delta


@pytest.fixture(params=["memory", "hashmap"])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Runs:
    return Runs(tmp_path, request.param)


def value(type_info: TypeInformation) -> Work:
    return lambda states: states.get_state(ValueStateDescriptor("seen", type_info))


def test_values_are_migrated_with_the_first_micro_batch_that_declares_the_new_type(
    runs: Runs,
) -> None:
    runs.run(["a", "b", "c"], value(OLD), lambda state: state.update(Row(name="x", n=1)))

    def bump(state: Any) -> Row:
        row = state.value()
        state.update(Row(n=row.n + 0.5, name=row.name, more=7))
        return Row(*row)

    seen, delta = runs.run(["b"], value(NEW), bump)
    assert seen == [Row(1.0, "x", None)]
    assert len(delta.keys) == 1 + 3
    again, delta = runs.run(["a", "b", "c", "d"], value(NEW), lambda state: state.value())
    untouched = Row(n=1.0, name="x", more=None)
    assert again == [untouched, Row(n=1.5, name="x", more=7), untouched, None]
    assert len(delta) == 0


def test_a_value_that_is_cleared_during_its_migration_stays_deleted(runs: Runs) -> None:
    runs.run(["a", "b"], value(OLD), lambda state: state.update(Row(name="x", n=1)))
    runs.run(["a"], value(NEW), lambda state: state.clear())
    seen, _ = runs.run(["a", "b"], value(NEW), lambda state: state.value())
    assert seen == [None, Row(n=1.0, name="x", more=None)]


def test_a_lost_try_migrates_nothing_and_the_next_one_does(runs: Runs) -> None:
    runs.run(["a"], value(OLD), lambda state: state.update(Row(name="x", n=1)))
    runs.run(["a"], value(NEW), lambda state: state.value(), publish=False)
    seen, _ = runs.run(["a"], value(OLD), lambda state: state.value())
    assert seen == [Row(name="x", n=1)]
    runs.run(["b"], value(NEW), lambda state: state.value())
    seen, _ = runs.run(["a"], value(NEW), lambda state: state.value())
    assert seen == [Row(n=1.0, name="x", more=None)]


def test_states_kept_in_a_worker_migrate_again_after_a_lost_try(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.run(["a"], value(Types.INT()), lambda state: state.update(1))
    states = KeyedStates("count", KeyCodec(Types.STRING(), "count"))
    seen = states.get_state(ValueStateDescriptor("seen", Types.DOUBLE()))
    key = states.codec.encode("a")
    for _ in range(2):
        states.bind(runs.open(), [routed_key(key, key_group(key, 128))])
        states.current = 0
        assert repr(seen.value()) == "1.0"
        assert len(states.take_delta().keys) == 2


def test_wider_integers_are_declared_and_not_rewritten(runs: Runs) -> None:
    runs.run(["a", "b"], value(Types.INT()), lambda state: state.update(5))
    _, delta = runs.run(["c"], value(Types.LONG()), lambda state: state.update(2**40))
    assert len(delta.keys) == 1 + 1
    seen, _ = runs.run(["a", "c"], value(Types.LONG()), lambda state: state.value())
    assert seen == [5, 2**40]


def test_lists_maps_reductions_and_accumulators_are_migrated(runs: Runs) -> None:
    class Sum:
        def create_accumulator(self) -> Any:
            return 0

        def add(self, value: Any, accumulator: Any) -> Any:
            return accumulator + value

        def get_result(self, accumulator: Any) -> Any:
            return accumulator

    def declare(type_info: TypeInformation) -> Work:
        return lambda states: (
            states.get_list_state(ListStateDescriptor("list", type_info)),
            states.get_map_state(MapStateDescriptor("map", Types.STRING(), type_info)),
            states.get_reducing_state(ReducingStateDescriptor("reduced", max, type_info)),
            states.get_aggregating_state(AggregatingStateDescriptor("sum", Sum(), type_info)),
        )

    def write(given: Any) -> None:
        elements, entries, reduced, added = given
        elements.add_all([1, 2])
        entries.put_all({"x": 1, "y": 2, "none": None})
        reduced.add(3)
        added.add(4)

    def read(given: Any) -> Any:
        elements, entries, reduced, added = given
        return elements.get(), dict(entries.items()), reduced.get(), added.get()

    def change(given: Any) -> Any:
        elements, entries, _, added = given
        assert entries.get("none") is None
        assert entries.contains("none")
        entries.remove("y")
        entries.put("z", 9)
        elements.add(0.5)
        added.add(0.5)

    runs.run(["a", "b"], declare(Types.INT()), write)
    runs.run(["a"], declare(Types.DOUBLE()), change)
    seen, _ = runs.run(["a", "b"], declare(Types.DOUBLE()), read)
    assert repr(seen) == repr(
        [
            ([1.0, 2.0, 0.5], {"none": None, "x": 1.0, "z": 9.0}, 3.0, 4.5),
            ([1.0, 2.0], {"none": None, "x": 1.0, "y": 2.0}, 3.0, 4.0),
        ]
    )


def test_a_map_that_is_cleared_during_its_migration_is_empty(runs: Runs) -> None:
    def declare(type_info: TypeInformation) -> Work:
        descriptor = MapStateDescriptor("map", Types.STRING(), type_info)
        return lambda states: states.get_map_state(descriptor)

    runs.run(["a", "b"], declare(Types.INT()), lambda state: state.put_all({"x": 1, "y": 2}))

    def replace(state: Any) -> None:
        state.clear()
        state.put("y", 3)

    runs.run(["a"], declare(Types.DOUBLE()), replace)
    seen, _ = runs.run(["a", "b"], declare(Types.DOUBLE()), lambda state: dict(state.items()))
    assert repr(seen) == repr([{"y": 3.0}, {"x": 1.0, "y": 2.0}])


def test_a_state_declared_late_is_migrated_then(runs: Runs) -> None:
    runs.run(["a"], value(Types.INT()), lambda state: state.update(1))

    def both(states: KeyedStates) -> Any:
        other = states.get_state(ValueStateDescriptor("other", Types.LONG()))
        return states, other

    def late(given: Any) -> Any:
        states, other = given
        other.update(1)
        return states.get_state(ValueStateDescriptor("seen", Types.DOUBLE())).value()

    assert repr(runs.run(["a"], both, late)[0]) == "[1.0]"


@pytest.mark.parametrize(
    "declare",
    [
        value(Types.STRING()),
        value(Types.BYTE()),
        value(Types.PICKLED_BYTE_ARRAY()),
        lambda states: states.get_list_state(ListStateDescriptor("seen", Types.INT())),
        lambda states: states.get_reducing_state(ReducingStateDescriptor("seen", max, Types.INT())),
    ],
)
def test_an_incompatible_type_or_another_kind_is_rejected_with_both(
    tmp_path: Path, declare: Work
) -> None:
    runs = Runs(tmp_path)
    runs.run(["a"], value(Types.INT()), lambda state: state.update(1))
    with pytest.raises(StateTypeChangedError, match="step 'count': state 'seen'") as caught:
        runs.run(["a"], declare, lambda state: None)
    assert caught.value.stored == "value state of INT"
    assert caught.value.declared in str(caught.value)
    seen, _ = runs.run(["a"], value(Types.INT()), lambda state: state.value())
    assert seen == [1]


def test_the_registry_counts_migrations(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    for type_info in (Types.INT(), Types.LONG(), Types.LONG(), Types.BIG_INT()):
        runs.run(["a"], value(type_info), lambda state: state.update(1))
    with runs.open() as store:
        assert read_registry(store) == {"seen": StateMetaInfo(1, "value state", "BIG_INT", 2)}


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 99)),
    st.dictionaries(st.sampled_from("abcdefghij"), st.none() | st.integers(100, 199)),
)
def test_migrated_and_changed_values_make_one_table(
    before: dict[str, int], changes: dict[str, int | None]
) -> None:
    runs = Runs(Path("/nowhere"))
    assert isinstance(runs.backend, MemoryBackend)
    old, new = iter(before.values()), iter(changes.values())
    runs.run(list(before), value(Types.INT()), lambda state: state.update(next(old)))
    runs.run(list(changes), value(Types.DOUBLE()), lambda state: state.update(next(new)))
    keys = list("abcdefghij")
    seen, _ = runs.run(keys, value(Types.DOUBLE()), lambda state: state.value())
    expected = {**before, **changes}
    assert seen == [expected.get(key) for key in keys]
    assert {type(found) for found in seen} <= {float, type(None)}


def info(type_text: str, generation: int = 0, kind: str = "value state") -> StateMetaInfo:
    return StateMetaInfo(1, kind, type_text, generation)


def test_the_registry_of_a_migrated_subtask_is_newer() -> None:
    wide, narrow = "ROW(a: INT, b: INT)", "ROW(a: INT)"
    assert later_of(info(narrow, 1), info(wide)) == info(narrow, 1)
    assert later_of(info(narrow), info(wide, 1)) == info(wide, 1)
    assert later_of(info("INT"), info("LONG")) == info("LONG")
    assert later_of(info("LONG"), info("INT")) == info("LONG")
    assert later_of(info("LONG"), info("INT", 1)) is None
    assert later_of(info("LONG"), info("STRING")) is None
    assert later_of(info("LONG"), info("LONG", kind="raw state")) is None


def test_a_type_that_cannot_be_read_is_rejected_and_not_guessed() -> None:
    found = rewriter(info("COMPLEX"), info("LONG"))
    assert isinstance(found, Incompatible)
    assert "COMPLEX" in found.reason


def test_subtasks_merged_into_one_use_the_newer_type(tmp_path: Path) -> None:
    before, after = Runs(tmp_path / "before"), Runs(tmp_path / "after")
    keys = [f"k{number}" for number in range(40)]
    groups = {key: key_group(KeyCodec(Types.STRING()).encode(key), 128) for key in keys}
    low, high = ([k for k in keys if (groups[k] < 64) == is_low] for is_low in (True, False))
    before.run(low, value(Types.INT()), lambda state: state.update(1))
    after.run(high, value(Types.INT()), lambda state: state.update(2))
    after.run(high[:1], value(Types.DOUBLE()), lambda state: state.value())
    gathered = Runs(tmp_path / "gathered", "hashmap")
    gathered.ref = gathered.backend.restore(
        [(runs.backend, runs.place, runs.ref) for runs in (before, after)],
        KeyGroupRange(0, 128),
        gathered.place,
        StagedName("b", 0, 0, 0, 0),
    )
    seen, delta = gathered.run([*low, *high], value(Types.DOUBLE()), lambda state: state.value())
    assert repr(seen) == repr([1.0] * len(low) + [2.0] * len(high))
    assert len(delta) == 0
