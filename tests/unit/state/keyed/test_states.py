from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Row, Types
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    RawStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.errors import (
    StateDeclaredTwiceError,
    StateTypeChangedError,
    StateTypeMismatchError,
    UnstableKeyError,
)
from penstock.state.backends.memory import MemoryBackend
from penstock.state.backends.refs import StagedName, StateLocation, StateRef
from penstock.state.delta import Delta
from penstock.state.key_groups import key_group, routed_key
from penstock.state.keyed.states import KeyedStates
from penstock.state.keys import KeyCodec

PLACE = StateLocation(Path("/nowhere"), Path("/nowhere"))


class Job:
    """Runs micro-batches of one step against the memory backend."""

    def __init__(self) -> None:
        self.backend = MemoryBackend("count")
        self.ref = StateRef(0)
        self.new_states()

    def new_states(self) -> KeyedStates:
        self.states = KeyedStates("count", KeyCodec(step="count"))
        return self.states

    def bind(self, keys: Sequence[Any]) -> None:
        store = self.backend.open(PLACE, self.ref)
        self.states.bind(store, [routed(self.states, key) for key in keys])
        self.states.current = 0

    def commit(self) -> Delta:
        version = self.ref.version + 1
        delta = self.states.take_delta()
        staged = self.backend.stage(PLACE, delta, StagedName("a", version, 0, 0, 0), version)
        self.ref = self.backend.publish(self.ref, version, staged)
        return delta

    def batch(self, keys: Sequence[Any], work: Callable[[], Any]) -> list[Any]:
        """Do the work under each key, publish, and return what it returned."""
        self.bind(keys)
        results = []
        for self.states.current in range(len(keys)):
            results.append(work())
        self.commit()
        return results


def routed(states: KeyedStates, key: Any) -> bytes:
    encoded = states.codec.encode(key)
    return routed_key(encoded, key_group(encoded, 128))


@pytest.fixture
def job() -> Job:
    return Job()


def test_a_value_is_kept_per_key_and_across_micro_batches(job: Job) -> None:
    seen = job.states.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def count() -> int:
        seen.update((seen.value() or 0) + 1)
        value = seen.value()
        assert value is not None
        return int(value)

    assert job.batch(["a", "b"], count) == [1, 1]
    assert job.batch(["b", "c"], count) == [2, 1]


def test_a_new_function_finds_the_values_of_the_old_one(job: Job) -> None:
    descriptor = ValueStateDescriptor("seen", Types.LONG())
    seen = job.states.get_state(descriptor)
    job.batch(["a"], lambda: seen.update(7))
    again = job.new_states().get_state(descriptor)
    assert job.batch(["a"], again.value) == [7]


def test_clear_and_none_remove_a_value(job: Job) -> None:
    seen = job.states.get_state(ValueStateDescriptor("seen", Types.LONG()))
    job.batch(["a", "b"], lambda: seen.update(1))
    job.bind(["a", "b"])
    seen.clear()
    job.states.current = 1
    seen.update(None)
    assert seen.value() is None
    assert len(job.commit().deletes) == 2
    assert job.batch(["a", "b"], seen.value) == [None, None]


def test_a_failed_try_leaves_nothing_in_kept_states(job: Job) -> None:
    seen = job.states.get_state(ValueStateDescriptor("seen", Types.LONG()))
    job.bind(["a"])
    seen.update(1)
    job.states.take_delta()
    assert job.batch(["a"], seen.value) == [None]
    job.batch(["a"], lambda: seen.update(2))
    assert job.batch(["a"], seen.value) == [2]


def test_a_delta_is_sorted_and_taken_once(job: Job) -> None:
    one = job.states.get_state(ValueStateDescriptor("one", Types.LONG()))
    two = job.states.get_map_state(MapStateDescriptor("two", Types.STRING(), Types.LONG()))
    job.bind([f"k{number}" for number in range(50)])
    for job.states.current in range(50):
        one.update(1)
        two.put("b", 1)
        two.put("a", 1)
    delta = job.states.take_delta()
    assert delta.keys == sorted(delta.keys)
    assert len(delta.keys) == 2 + 50 + 100
    assert len(job.states.take_delta()) == 0


def test_a_delta_is_sorted_whatever_the_keys_look_like(job: Job) -> None:
    seen = job.states.get_state(ValueStateDescriptor("seen", Types.LONG()))
    for longest in (10, 100_000):
        keys = ["", "a", "a\0", "a\0\0", "x" * longest, b"\0", *range(1000)]
        job.bind(keys)
        for job.states.current in range(len(keys)):
            seen.update(1)
        delta = job.states.take_delta()
        assert delta.keys == sorted(set(delta.keys))


@pytest.mark.parametrize("touched", [range(5000), range(0, 5000, 50), range(4999, -1, -1)])
def test_values_are_right_however_many_keys_are_touched(job: Job, touched: range) -> None:
    seen = job.states.get_state(ValueStateDescriptor("seen", Types.LONG()))
    keys = list(range(5000))
    job.bind(keys)
    for job.states.current in range(0, 5000, 2):
        seen.update(job.states.current)
    job.commit()
    job.bind(keys)
    for position, index in enumerate(touched):
        job.states.current = index
        assert seen.value() == (index if index % 2 == 0 else None)
        if position % 3 == 0:
            seen.update(-index)
    late = job.states.add_keys([routed(job.states, "late")])
    job.states.current = late[0]
    seen.update(1)
    job.commit()
    changed = {index for position, index in enumerate(touched) if position % 3 == 0}
    expected = [-k if k in changed else (k if k % 2 == 0 else None) for k in keys]
    assert job.batch([*keys, "late"], seen.value) == [*expected, 1]


def test_a_key_added_after_all_were_loaded_is_written_under_its_own_name(job: Job) -> None:
    seen = job.states.get_state(ValueStateDescriptor("seen", Types.LONG()))
    keys = list(range(3000))
    job.bind(keys)
    for job.states.current in range(3000):
        seen.value()
    [late] = job.states.add_keys([routed(job.states, "late")])
    for job.states.current in [*range(1, 3000), late]:
        seen.update(job.states.current)
    job.commit()
    assert job.batch([*keys, "late"], seen.value) == [None, *range(1, 3000), late]


def test_only_what_was_written_is_in_the_delta(job: Job) -> None:
    seen = job.states.get_state(ValueStateDescriptor("seen", Types.LONG()))
    job.batch(["a", "b", "c"], lambda: seen.update(1))
    job.bind([f"k{number}" for number in range(20)] + ["b"])
    job.states.current = 20
    seen.update(seen.value() + 1)
    delta = job.commit()
    assert len(delta) == 1
    assert job.batch(["a", "b"], seen.value) == [1, 2]


def test_keys_can_be_added_while_a_micro_batch_runs(job: Job) -> None:
    seen = job.states.get_state(ValueStateDescriptor("seen", Types.LONG()))
    job.batch(["late"], lambda: seen.update(5))
    job.bind(["a"])
    [job.states.current] = job.states.add_keys([routed(job.states, "late")])
    assert (job.states.current_key(), seen.value()) == ("late", 5)
    seen.update(6)
    job.commit()
    assert job.batch(["late"], seen.value) == [6]


def test_the_current_key_is_the_one_that_was_given(job: Job) -> None:
    assert job.batch([1, 1.0, True, None, ("a", 1)], job.states.current_key) == (
        [1, 1.0, True, None, ("a", 1)]
    )


def test_a_list_keeps_order_and_is_not_shared_with_the_user(job: Job) -> None:
    items = job.states.get_list_state(ListStateDescriptor("items", Types.LONG()))
    job.bind(["a"])
    assert items.get() == []
    items.add(1)
    items.add_all([2, 3])
    items.get().append(99)
    given = [4, 5]
    job.commit()
    assert job.batch(["a"], items.get) == [[1, 2, 3]]
    job.batch(["a"], lambda: items.update(given))
    given.append(6)
    assert job.batch(["a"], lambda: list(items)) == [[4, 5]]
    job.batch(["a"], lambda: items.update([]))
    assert job.batch(["a"], items.get) == [[]]


def test_a_list_of_untyped_values(job: Job) -> None:
    items = job.states.get_list_state(ListStateDescriptor("items"))
    job.batch(["a"], lambda: items.add_all([{"x": 1}, None]))
    assert job.batch(["a"], items.get) == [[{"x": 1}, None]]


def test_a_reducing_state_combines_values(job: Job) -> None:
    total = job.states.get_reducing_state(
        ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
    )
    assert job.batch(["a"], total.get) == [None]
    for _ in range(2):
        job.batch(["a", "b"], lambda: total.add(5))
    assert job.batch(["a", "b", "c"], total.get) == [10, 10, None]
    job.batch(["a"], total.clear)
    assert job.batch(["a"], total.get) == [None]


class Maximum:
    def reduce(self, first: int, second: int) -> int:
        return max(first, second)


def test_a_reducing_state_takes_an_object_with_reduce(job: Job) -> None:
    largest = job.states.get_reducing_state(ReducingStateDescriptor("max", Maximum(), Types.LONG()))
    for value in (3, 1):
        job.batch(["a"], partial(largest.add, value))
    assert job.batch(["a"], largest.get) == [3]


class Average:
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


def test_an_aggregating_state_keeps_its_accumulator(job: Job) -> None:
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    mean = job.states.get_aggregating_state(AggregatingStateDescriptor("mean", Average(), pair))
    assert job.batch(["a"], mean.get) == [None]
    job.batch(["a"], lambda: mean.add(1))
    job.batch(["a"], lambda: mean.add(2))
    assert job.batch(["a"], mean.get) == [1.5]
    job.batch(["a"], lambda: mean.add(None))
    assert job.batch(["a"], mean.get) == [None]


def test_raw_state_is_stored_untouched(job: Job) -> None:
    raw = job.states.get_raw_state(RawStateDescriptor("raw"))
    job.bind(["a"])
    assert raw.get() is None
    raw.set(b"\xff\0")
    assert job.commit().values[-1] == b"\xff\0"
    assert job.batch(["a"], raw.get) == [b"\xff\0"]
    job.batch(["a"], lambda: raw.set(b""))
    assert job.batch(["a"], raw.get) == [b""]
    job.batch(["a"], raw.clear)
    assert job.batch(["a"], raw.get) == [None]
    with pytest.raises(StateTypeMismatchError):
        raw.set("text")  # type: ignore[arg-type]


def test_one_name_gives_one_state(job: Job) -> None:
    descriptor = ValueStateDescriptor("seen", Types.LONG())
    assert job.states.get_state(descriptor) is job.states.get_state(descriptor)


def test_a_name_declared_with_two_types_or_kinds_is_rejected(job: Job) -> None:
    job.states.get_state(ValueStateDescriptor("seen", Types.LONG()))
    with pytest.raises(StateDeclaredTwiceError, match=r"value state of LONG .* of STRING"):
        job.states.get_state(ValueStateDescriptor("seen", Types.STRING()))
    with pytest.raises(StateDeclaredTwiceError, match=r"list state of LIST\(LONG\)"):
        job.states.get_list_state(ListStateDescriptor("seen", Types.LONG()))


def test_a_stored_name_declared_with_an_incompatible_type_is_rejected(job: Job) -> None:
    seen = job.states.get_state(ValueStateDescriptor("seen", Types.LONG()))
    job.batch(["a"], lambda: seen.update(1))
    job.new_states()
    job.bind(["a"])
    with pytest.raises(StateTypeChangedError, match="step 'count': state 'seen'"):
        job.states.get_state(ValueStateDescriptor("seen", Types.DOUBLE()))
    job.new_states().get_state(ValueStateDescriptor("seen", Types.DOUBLE()))
    with pytest.raises(StateTypeChangedError, match=r"LONG .* DOUBLE"):
        job.bind(["a"])


def test_tables_follow_names_not_the_order_of_declaration(job: Job) -> None:
    first, second = (ValueStateDescriptor(name, Types.LONG()) for name in ("one", "two"))
    one, two = job.states.get_state(first), job.states.get_state(second)
    job.batch(["a"], lambda: one.update(1))
    job.batch(["a"], lambda: two.update(2))
    job.new_states()
    two, one = job.states.get_state(second), job.states.get_state(first)
    assert job.batch(["a"], lambda: (one.value(), two.value())) == [(1, 2)]


def test_a_misfit_is_rejected_where_it_is_written(job: Job) -> None:
    seen = job.states.get_state(ValueStateDescriptor("seen", Types.LONG()))
    job.bind(["a"])
    with pytest.raises(StateTypeMismatchError) as caught:
        seen.update("five")
    assert str(caught.value) == (
        "step 'count', state 'seen', key 'a' does not match its declared type Long; got 'five'"
    )


def test_a_number_out_of_range_is_rejected_before_it_is_staged(job: Job) -> None:
    seen = job.states.get_state(ValueStateDescriptor("seen", Types.INT()))
    job.bind(["a", "b"])
    seen.update(1)
    job.states.current = 1
    seen.update(2**31)
    with pytest.raises(StateTypeMismatchError, match=r"key 'b' .*2147483648"):
        job.states.take_delta()


def test_a_value_changed_in_place_is_checked_again(job: Job) -> None:
    items = job.states.get_state(ValueStateDescriptor("items", Types.LIST(Types.LONG())))
    job.bind(["a"])
    value = [1]
    items.update(value)
    value.append("x")  # type: ignore[arg-type]
    with pytest.raises(StateTypeMismatchError, match=r"field '\[1\]'"):
        job.states.take_delta()


def test_a_value_reads_the_same_before_and_after_it_was_stored(job: Job) -> None:
    price = job.states.get_state(ValueStateDescriptor("price", Types.FLOAT()))
    row = job.states.get_state(ValueStateDescriptor("row", Types.ROW([Types.LONG()])))
    job.bind(["a"])
    price.update(0.1)
    row.update(Row(1))
    before = price.value(), row.value()
    job.commit()
    assert job.batch(["a"], lambda: (price.value(), row.value())) == [before]


def test_errors_in_lists_and_maps_name_the_place(job: Job) -> None:
    items = job.states.get_list_state(ListStateDescriptor("items", Types.LONG()))
    counts = job.states.get_map_state(MapStateDescriptor("counts", Types.STRING(), Types.LONG()))
    job.bind(["a"])
    with pytest.raises(StateTypeMismatchError, match="state 'items'"):
        items.add("x")
    with pytest.raises(StateTypeMismatchError, match=r"field \"\['x'\]\""):
        counts.put("x", "y")
    with pytest.raises(StateTypeMismatchError, match=r"field '\[key\]'"):
        counts.get(1)


def test_an_untyped_map_refuses_unstable_keys(job: Job) -> None:
    counts = job.states.get_map_state(MapStateDescriptor("counts"))
    job.bind(["a"])
    with pytest.raises(UnstableKeyError):
        counts.put(object(), 1)


def iter_forever() -> Iterator[int]:
    while True:
        yield 1


def test_a_state_that_does_not_pickle_is_rejected_by_name(job: Job) -> None:
    seen = job.states.get_state(ValueStateDescriptor("seen"))
    job.bind(["a"])
    seen.update(iter_forever())
    with pytest.raises(StateTypeMismatchError, match="state 'seen', key 'a'"):
        job.states.take_delta()


def test_many_untouched_states_cost_no_delta(job: Job) -> None:
    for number in range(3):
        job.states.get_state(ValueStateDescriptor(f"s{number}", Types.LONG()))
    job.bind(["a"])
    assert len(job.commit()) == 3, "the registry only"
    job.bind(["a"])
    assert len(job.commit()) == 0
