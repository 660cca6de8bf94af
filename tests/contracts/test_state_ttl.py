"""What state TTL guarantees, with every backend."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.common import Duration, Time, Types
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    RawStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.state.local_dir import choose_local_dir
from tests.contracts.ttl_harness import (
    BACKENDS,
    NEVER,
    ON_READ,
    SHOWN,
    SHOWN_ON_READ,
    TTL,
    World,
    elements,
    entries,
    expiring,
    reduced,
    summed,
    ttl,
    value,
)


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=choose_local_dir()) as path:
        yield Path(path)


@pytest.fixture(params=BACKENDS)
def world(request: pytest.FixtureRequest, root: Path) -> World:
    return World(request.param, root)


def test_a_value_is_there_until_its_time_is_over_and_then_no_more(world: World) -> None:
    state = world.states.get_state(value())
    world.batch(["a"], lambda: state.update(1))
    world.now += TTL - 1
    assert world.batch(["a"], state.value) == [1]
    world.now += 1
    assert world.batch(["a"], state.value) == [None]
    assert world.stored() == {"value": 0}


def test_writing_prolongs_and_reading_does_not(world: World) -> None:
    state = world.states.get_state(value())
    world.batch(["a", "b"], lambda: state.update(1))
    world.now += TTL - 1
    world.batch(["a"], state.value)
    world.batch(["b"], lambda: state.update(2))
    world.now += 1
    assert world.batch(["a", "b"], state.value) == [None, 2]


def test_reading_prolongs_the_ttl_if_configured(world: World) -> None:
    state = world.states.get_state(value(ON_READ))
    world.batch(["a", "b"], lambda: state.update(1))
    for _ in range(3):
        world.now += TTL - 1
        assert world.batch(["a"], state.value) == [1]
    assert world.batch(["b"], state.value) == [None]


def test_an_expired_value_is_returned_until_cleanup_if_configured(world: World) -> None:
    state = world.states.get_state(value(SHOWN))
    world.batch(["a"], lambda: state.update(1))
    world.now += 10 * TTL
    assert world.batch(["a"], state.value) == [1]
    assert world.batch(["a"], state.value) == [None]
    assert world.stored() == {"value": 0}


def test_a_lost_try_has_neither_prolonged_nor_removed_anything(world: World) -> None:
    state = world.states.get_state(value(SHOWN_ON_READ))
    world.batch(["a"], lambda: state.update(1))
    world.now += TTL - 1
    world.batch(["a"], state.value, publish=False)
    world.now += 1
    assert world.batch(["a"], state.value, publish=False) == [1]
    assert world.batch(["a"], state.value) == [1]
    assert world.batch(["a"], state.value) == [None]


def test_elements_of_a_list_expire_one_by_one(world: World) -> None:
    state = world.states.get_list_state(elements())
    world.batch(["a"], lambda: state.add_all([1, 2]))
    world.now += TTL // 2
    world.batch(["a"], lambda: state.add(3))
    world.now += TTL // 2
    assert world.batch(["a"], state.get) == [[3]]
    world.now += TTL
    assert world.batch(["a"], state.get) == [[]]
    assert world.stored() == {"list": 0}


def test_a_list_that_is_only_added_to_does_not_grow_for_ever(world: World) -> None:
    state = world.states.get_list_state(elements(ttl().disable_cleanup_in_background().build()))
    for number in range(20):
        world.batch(["a"], partial(state.add, number))
        world.now += TTL // 2
    (size,) = [
        len(data) for key, data in world.backend.entries(world.place, world.ref) if key[1] == 1
    ]
    assert size < 4 + 3 * 8 + 10


def test_entries_of_a_map_expire_one_by_one(world: World) -> None:
    state = world.states.get_map_state(entries())
    world.batch(["a"], lambda: state.put_all({"x": 1, "y": None}))
    world.now += TTL // 2
    world.batch(["a"], lambda: state.put("z", 3))
    assert world.batch(["a"], lambda: list(state.items())) == [[("x", 1), ("y", None), ("z", 3)]]
    world.now += TTL // 2
    assert world.batch(["a"], lambda: state.contains("x")) == [False]
    assert world.batch(["a"], lambda: list(state.keys())) == [["z"]]
    assert world.stored() == {"map": 1}
    assert world.batch(["a"], state.is_empty) == [False]
    world.now += TTL
    assert world.batch(["a"], state.is_empty) == [True]


def test_a_reduced_value_that_expired_is_not_combined(world: World) -> None:
    reducing: Any = world.states.get_reducing_state(reduced())
    adding: Any = summed_of(world)
    world.batch(["a"], lambda: (reducing.add(1), adding.add(1)))
    world.now += TTL
    world.batch(["a"], lambda: (reducing.add(5), adding.add(5)))
    assert world.batch(["a"], lambda: (reducing.get(), adding.get())) == [(5, 5)]
    world.batch(["a"], lambda: (reducing.add(2), adding.add(2)))
    assert world.batch(["a"], lambda: (reducing.get(), adding.get())) == [(7, 7)]


def summed_of(world: World) -> Any:
    return world.states.get_aggregating_state(summed())


def test_raw_bytes_expire_too(world: World) -> None:
    descriptor = expiring(RawStateDescriptor("raw"), NEVER)
    state = world.states.get_raw_state(descriptor)
    world.batch(["a"], lambda: state.set(b"bytes"))
    assert world.batch(["a"], state.get) == [b"bytes"]
    world.now += TTL
    assert world.batch(["a"], state.get) == [None]


def test_expired_values_that_are_never_read_are_cleaned_up(world: World) -> None:
    a_value, a_list, a_map = declared(world, value(), elements(), entries())
    keys = [f"key-{number}" for number in range(1500)]
    world.batch(keys, lambda: (a_value.update(1), a_list.add(1), a_map.put("x", 1)))
    assert world.stored() == {"value": 1500, "list": 1500, "map": 1500}
    world.now += TTL - 1
    world.idle(5)
    assert world.stored() == {"value": 1500, "list": 1500, "map": 1500}
    world.now += TTL
    world.idle(5)
    assert world.stored() == {"value": 0, "list": 0, "map": 0}


def test_cleanup_continues_in_another_process_where_it_stopped(world: World) -> None:
    state = world.states.get_state(value())
    world.batch([f"key-{number}" for number in range(2500)], lambda: state.update(1))
    world.now += 2 * TTL
    left = []
    for _ in range(4):
        world.new_function().get_state(value())
        world.idle()
        left.append(world.stored()["value"])
    assert left == [1500, 500, 0, 0]


def test_a_walk_takes_the_expired_elements_out_of_a_list_and_leaves_the_others(
    world: World,
) -> None:
    state = world.states.get_list_state(elements())
    world.batch(["a"], lambda: state.add_all([1, 2]))
    world.now += TTL // 2
    world.batch(["a"], lambda: state.add(3))
    before = stored_bytes(world)
    world.now += TTL // 2
    world.idle()
    assert stored_bytes(world) < before - 16
    assert world.batch(["a"], state.get) == [[3]]


def stored_bytes(world: World) -> int:
    return sum(len(d) for k, d in world.backend.entries(world.place, world.ref) if k[1] > 0)


def test_without_cleanup_in_the_background_only_access_removes(world: World) -> None:
    state = world.states.get_state(value(ttl().disable_cleanup_in_background().build()))
    world.batch(["a", "b"], lambda: state.update(1))
    world.now += 2 * TTL
    world.idle(5)
    assert world.stored() == {"value": 2}
    world.batch(["a"], state.value)
    assert world.stored() == {"value": 1}


def test_a_walk_with_nothing_to_find_is_not_begun_again_before_something_can_expire(
    world: World,
) -> None:
    state = world.states.get_state(value(ttl(1_000_000).build()))
    world.batch(["a"], lambda: state.update(1))
    world.idle()
    before = world.info("value")
    world.now += 500_000
    world.idle(3)
    assert world.info("value") == before


def test_the_size_of_incremental_cleanup_counts_by_keys(world: World) -> None:
    by_record = ttl().cleanup_incrementally(1000, True).build()
    state = world.states.get_state(value(by_record))
    world.batch([f"key-{number}" for number in range(3000)], lambda: state.update(1))
    world.now += 2 * TTL
    world.batch(["x", "y"], lambda: None)
    assert world.stored() == {"value": 1000}


def test_stamps_survive_a_rescale_and_a_savepoint(world: World) -> None:
    descriptors = value(), elements(), entries()
    a_value, a_list, a_map = declared(world, *descriptors)
    world.batch(["a", "b"], lambda: (a_value.update(1), a_list.add(1), a_map.put("x", None)))
    world.now += TTL // 2
    world.batch(["b"], lambda: (a_value.update(2), a_list.add(2), a_map.put("y", 2)))
    for move in (world.rescale, world.save):
        move()
        a_value, a_list, a_map = declared(world, *descriptors)

        def read(
            a_value: Any = a_value, a_list: Any = a_list, a_map: Any = a_map
        ) -> tuple[Any, ...]:
            return a_value.value(), a_list.get(), dict(a_map.items())

        shown = world.batch(["a", "b"], read)
        assert shown == [(1, [1], {"x": None}), (2, [1, 2], {"x": None, "y": 2})]
    world.now += TTL // 2
    assert world.batch(["a", "b"], read) == [(None, [], {}), (2, [2], {"y": 2})]


def declared(
    world: World, a: ValueStateDescriptor, b: ListStateDescriptor, c: MapStateDescriptor
) -> tuple[Any, Any, Any]:
    states = world.states
    return states.get_state(a), states.get_list_state(b), states.get_map_state(c)


def test_a_savepoint_has_a_column_of_last_access_times(
    world: World,
) -> None:
    states = declared(world, value(), elements(), entries())
    world.batch(["a"], lambda: (states[0].update(7), states[1].add_all([1, 2])))
    savepoint = world.save()
    (row,) = pq.read_table(next(savepoint.glob("*/value/*.parquet"))).to_pylist()
    assert row["value"] == 7
    assert row["alive_since"].timestamp() * 1000 == world.now
    (row,) = pq.read_table(next(savepoint.glob("*/list/*.parquet"))).to_pylist()
    assert (row["value"], len(row["alive_since"])) == ([1, 2], 2)
    empty = pq.read_table(next(savepoint.glob("*/map/*.parquet")))
    assert empty.num_rows == 0
    metadata = pq.read_schema(next(savepoint.glob("*/value/*.parquet"))).metadata
    assert metadata[b"penstock.ttl_ms"] == b"100"


@pytest.mark.parametrize("leaves_out", [True, False], ids=["left-out", "kept"])
def test_a_savepoint_omits_expired_values_if_configured(world: World, leaves_out: bool) -> None:
    builder = ttl().disable_cleanup_in_background()
    config = (builder.cleanup_full_snapshot() if leaves_out else builder).build()
    state: Any = world.states.get_state(value(config))
    a_list: Any = world.states.get_list_state(elements(config))
    world.batch(["a"], lambda: (state.update(1), a_list.add(1)))
    world.now += TTL
    world.batch(["b"], lambda: (state.update(2), a_list.add(2)))
    world.batch(["a"], lambda: a_list.add(3) if leaves_out else None)
    world.save()
    assert world.stored() == ({"value": 1, "list": 2} if leaves_out else {"value": 2, "list": 2})


def test_a_ttl_can_be_switched_on_for_a_state_that_has_values(world: World) -> None:
    states = declared(world, value(None), elements(None), entries(None))
    a_value, a_list, a_map = states
    world.batch(["a"], lambda: (a_value.update(1), a_list.add_all([1, 2]), a_map.put("x", None)))
    world.new_function()
    world.now += 10 * TTL
    a_value, a_list, a_map = declared(world, value(), elements(), entries())

    def read() -> tuple[Any, ...]:
        return a_value.value(), a_list.get(), dict(a_map.items())

    assert world.batch(["a"], read) == [(1, [1, 2], {"x": None})]
    world.now += TTL
    assert world.batch(["a"], read) == [(None, [], {})]


def test_a_ttl_can_be_switched_off_again(world: World) -> None:
    a_value, a_list, a_map = declared(world, value(), elements(), entries())
    world.batch(["a"], lambda: (a_value.update(1), a_list.add_all([1, 2]), a_map.put("x", None)))
    world.new_function()
    a_value, a_list, a_map = declared(world, value(None), elements(None), entries(None))

    def read() -> tuple[Any, ...]:
        return a_value.value(), a_list.get(), dict(a_map.items())

    assert world.batch(["b"], read) == [(None, [], {})]
    world.now += 10 * TTL
    assert world.batch(["a"], read) == [(1, [1, 2], {"x": None})]


def test_a_longer_or_shorter_life_holds_for_old_values_too(world: World) -> None:
    state = world.states.get_state(value())
    world.batch(["a"], lambda: state.update(1))
    world.now += TTL // 2
    for millis, seen in ((TTL // 2 + 1, 1), (TTL // 2, None)):
        state = world.new_function().get_state(value(ttl(millis).build()))
        assert world.batch(["a"], state.value) == [seen]
        assert world.info("value").ttl is not None


def test_the_type_of_an_expiring_state_may_grow(world: World) -> None:
    narrow = expiring(ListStateDescriptor("list", Types.INT()), NEVER)
    narrow_list = world.states.get_list_state(narrow)
    world.batch(["a"], lambda: narrow_list.add(1))
    world.now += TTL // 2
    world.new_function()
    wide = expiring(ListStateDescriptor("list", Types.BIG_INT()), NEVER)
    wide_list = world.states.get_list_state(wide)
    world.batch(["a"], lambda: wide_list.add(2**70))
    assert world.batch(["a"], wide_list.get) == [[1, 2**70]]
    world.now += TTL // 2
    assert world.batch(["a"], wide_list.get) == [[2**70]]


def test_a_disabled_configuration_is_none(world: World) -> None:
    config = ttl().set_update_type(StateTtlConfig.UpdateType.Disabled).build()
    state = world.states.get_state(value(config))
    world.batch(["a"], lambda: state.update(1))
    world.now += 10 * TTL
    assert world.batch(["a"], state.value) == [1]
    assert world.info("value").ttl is None


def test_a_time_to_live_may_be_a_duration_and_must_be_some_time() -> None:
    config = StateTtlConfig.new_builder(Duration.of_seconds(2)).build()
    assert config.get_ttl() == Time.seconds(2)
    for wrong in (Time.seconds(0), Duration.of_nanos(5), Time.seconds(-1), 5):
        with pytest.raises(ValueError, match="at least a millisecond"):
            StateTtlConfig.new_builder(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cleanup_size"):
        ttl().cleanup_incrementally(0, False)
    with pytest.raises(TypeError, match="needs a StateTtlConfig"):
        value(None).enable_time_to_live(Time.seconds(1))  # type: ignore[arg-type]
