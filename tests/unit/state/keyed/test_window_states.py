"""States per key and window: their bytes, and what is kept apart from what."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from penstock.common import Types
from penstock.common.serializer import TypeSerializer
from penstock.datastream.state import (
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.window import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
)
from penstock.errors import StateTypeChangedError
from penstock.state.keyed.states import WindowStates
from penstock.state.registry.meta_info import StateMetaInfo, read_registry
from penstock.state.window_encoding import TIME, encoding_for, length_of
from tests.unit.state.keyed.test_states import PLACE, Job


class TextWindowSerializer(TypeSerializer[str]):
    def serialize(self, element: str, stream: BytesIO) -> None:
        stream.write(element.encode())

    def deserialize(self, stream: BytesIO) -> str:
        return stream.read().decode()


GOLDEN: list[tuple[TypeSerializer[Any], Any, str, str]] = [
    (TimeWindowSerializer(), TimeWindow(0, 5000), "time", "80000000000000008000000000001388"),
    (TimeWindowSerializer(), TimeWindow(-5, -1), "time", "7ffffffffffffffb7fffffffffffffff"),
    (CountWindowSerializer(), CountWindow(7), "count", "8000000000000007"),
    (GlobalWindowSerializer(), GlobalWindow.get(), "global", "00"),
    (TextWindowSerializer(), "ab", "custom", "000000026162"),
]


@pytest.mark.parametrize(("serializer", "window", "name", "data"), GOLDEN, ids=lambda v: str(v))
def test_the_bytes_of_stored_windows_never_change(
    serializer: TypeSerializer[Any], window: Any, name: str, data: str
) -> None:
    encoding = encoding_for(serializer)
    assert encoding.name == name
    assert encoding.encode(window).hex() == data
    assert encoding.decode(bytes.fromhex(data)) == window
    suffix = b"key" + bytes.fromhex(data) + b"map key"
    assert length_of(name, suffix, 3) == len(data) // 2


def test_time_windows_sort_as_they_lie_in_time() -> None:
    windows = [TimeWindow(s, s + n) for s in (-(2**63), -1, 0, 1, 2**62) for n in (1, 2, 2**31)]
    encode = encoding_for(TimeWindowSerializer()).encode
    assert sorted(windows, key=encode) == sorted(windows) == windows


def test_the_registry_entry_of_a_state_without_windows_is_as_it_was() -> None:
    assert StateMetaInfo(1, "value state", "LONG").encode().hex() == (
        "9401ab76616c7565207374617465a44c4f4e4700"
    )
    assert StateMetaInfo(1, "value state", "LONG", 0, TIME).encode().hex() == (
        "9501ab76616c7565207374617465a44c4f4e4700a474696d65"
    )


@pytest.fixture
def job() -> Job:
    return Job()


ENCODE = encoding_for(TimeWindowSerializer()).encode
FIRST, SECOND = ENCODE(TimeWindow(0, 10)), ENCODE(TimeWindow(10, 20))
COUNT = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())
LAST = MapStateDescriptor("last", Types.STRING(), Types.LONG())


def per_window(job: Job) -> WindowStates:
    return job.states.per_window(TIME)


def test_each_window_of_each_key_has_a_state_of_its_own(job: Job) -> None:
    def count(*windows: bytes) -> list[int | None]:
        states = per_window(job)
        state = states.get_reducing_state(COUNT)
        found = []
        for window in windows:
            states.current = states.number_of(window)
            state.add(1)
            found.append(state.get())
        return found

    assert job.batch(["a", "b"], lambda: count(FIRST, SECOND, FIRST)) == [[1, 1, 2]] * 2
    job.new_states()
    assert job.batch(["b", "c"], lambda: count(FIRST, SECOND)) == [[3, 2], [1, 1]]


def test_a_map_of_a_window_ends_where_the_next_window_begins(job: Job) -> None:
    def put(window: bytes, **values: int) -> list[tuple[str, int]]:
        states = per_window(job)
        state = states.get_map_state(LAST)
        states.current = states.number_of(window)
        state.put_all(values)
        return list(state.items())

    job.batch(["a"], lambda: put(FIRST, x=1))
    job.batch(["a"], lambda: put(SECOND, y=2))
    job.new_states()
    assert job.batch(["a"], lambda: put(FIRST, z=3)) == [[("x", 1), ("z", 3)]]


def test_states_of_keys_and_of_windows_lie_in_one_registry(job: Job) -> None:
    def touch() -> None:
        states = per_window(job)
        states.current = states.number_of(FIRST)
        job.states.get_state(ValueStateDescriptor("seen", Types.LONG())).update(1)
        states.get_reducing_state(COUNT).add(1)

    job.batch(["a"], touch)
    with job.backend.open(PLACE, job.ref) as store:
        assert read_registry(store) == {
            "seen": StateMetaInfo(1, "value state", "LONG"),
            "count": StateMetaInfo(2, "reducing state", "LONG", 0, TIME),
        }


def test_a_state_per_window_cannot_become_one_per_key(job: Job) -> None:
    def touch() -> None:
        states = per_window(job)
        states.current = states.number_of(FIRST)
        states.get_reducing_state(COUNT).add(1)

    job.batch(["a"], touch)
    job.new_states()
    job.bind(["a"])
    with pytest.raises(StateTypeChangedError, match="per time window cannot become state per key"):
        job.states.get_reducing_state(COUNT)


def test_a_migrated_table_reads_new_in_both_scopes(job: Job) -> None:
    def touch(type_info: Any) -> list[Any]:
        states = per_window(job)
        states.current = states.number_of(FIRST)
        found = []
        for scope, name in ((job.states, "seen"), (states, "held")):
            state = scope.get_state(ValueStateDescriptor(name, type_info))
            found.append(state.value())
            state.update(1)
        return found

    job.batch(["a"], lambda: touch(Types.INT()))
    job.new_states()
    assert job.batch(["a"], lambda: touch(Types.DOUBLE())) == [[1.0, 1.0]]
    job.new_states()
    assert job.batch(["a"], lambda: touch(Types.DOUBLE())) == [[1.0, 1.0]]
