"""Whether others may look a state up is in the registry of its store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.common import Types
from penstock.common.time import Duration
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    RawStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.errors import StateDeclaredTwiceError
from penstock.state.registry.meta_info import (
    StateMetaInfo,
    TtlMetaInfo,
    decode_info,
    read_registry,
)
from tests.unit.state.registry.test_migration import Runs


def seen(queryable: str = "") -> ValueStateDescriptor:
    descriptor = ValueStateDescriptor("seen", Types.LONG())
    if queryable:
        descriptor.set_queryable(queryable)
    return descriptor


def registered(runs: Runs) -> StateMetaInfo:
    with runs.open() as store:
        return read_registry(store)["seen"]


class Sum:
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return value + accumulator

    def get_result(self, accumulator: int) -> int:
        return accumulator


@pytest.mark.parametrize(
    ("method", "descriptor"),
    [
        ("get_state", ValueStateDescriptor("seen", Types.LONG())),
        ("get_list_state", ListStateDescriptor("seen", Types.LONG())),
        ("get_map_state", MapStateDescriptor("seen", Types.LONG(), Types.LONG())),
        ("get_reducing_state", ReducingStateDescriptor("seen", max, Types.LONG())),
        ("get_aggregating_state", AggregatingStateDescriptor("seen", Sum(), Types.LONG())),
        ("get_raw_state", RawStateDescriptor("seen")),
    ],
)
@pytest.mark.parametrize("expires", [False, True])
def test_a_state_of_every_kind_keeps_its_queryable_name(
    tmp_path: Path, method: str, descriptor: StateDescriptor, expires: bool
) -> None:
    named = type(descriptor).__new__(type(descriptor))
    named.__dict__.update(vars(descriptor))
    named.set_queryable("visits")
    if expires:
        named.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_hours(1)).build())
    runs = Runs(tmp_path)
    runs.run(["a"], lambda states: getattr(states, method)(named), lambda state: None)
    assert registered(runs).queryable == "visits"


def test_a_restored_program_decides_anew_what_is_queryable(tmp_path: Path) -> None:
    runs = Runs(tmp_path)

    def run(name: str) -> Any:
        return runs.run(["a"], lambda s: s.get_state(seen(name)), lambda s: s.update(1))

    run("")
    before = registered(runs)
    for name in ("visits", "visitors", ""):
        _, delta = run(name)
        assert registered(runs).queryable == name
        assert len(delta) == 2, "the registry and the value, and no rewritten table"
        run(name)
    after = registered(runs)
    assert after == msgspec.structs.replace(before, generation=after.generation)


def test_two_declarations_of_one_state_agree_on_its_queryable_name(tmp_path: Path) -> None:
    def declare(states: Any) -> None:
        states.get_state(seen("visits"))
        states.get_state(seen())

    with pytest.raises(StateDeclaredTwiceError, match="queryable as 'visits'"):
        Runs(tmp_path).run(["a"], declare, lambda state: None)


def test_a_descriptor_says_whether_it_is_queryable() -> None:
    descriptor = seen()
    assert (descriptor.is_queryable(), descriptor.get_queryable_state_name()) == (False, None)
    descriptor.set_queryable("visits")
    assert (descriptor.is_queryable(), descriptor.get_queryable_state_name()) == (True, "visits")
    with pytest.raises(ValueError, match="queryable as 'visits' already"):
        descriptor.set_queryable("visitors")
    with pytest.raises(ValueError, match="needs a queryable name"):
        seen().set_queryable("")


def test_entries_of_older_versions_are_read_and_those_of_other_states_stay_as_they_were() -> None:
    ttl = TtlMetaInfo(5, 6, True)
    old = msgspec.msgpack.encode([1, "value state", "LONG", 2, "time", ttl])
    info = decode_info(old)
    assert info == StateMetaInfo(1, "value state", "LONG", 2, "time", ttl)
    assert info.encode() == old
    queryable = msgspec.structs.replace(info, queryable="visits")
    assert decode_info(queryable.encode()) == queryable
