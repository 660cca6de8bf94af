"""Functions with operator state, and functions that listen, task by task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types
from penstock.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FilterFunction,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
)
from penstock.datastream.state import ListState, ListStateDescriptor, ValueStateDescriptor
from penstock.errors import (
    OperatorStateTooLargeError,
    OperatorStateTypeMismatchError,
    StateDeclaredTwiceError,
    StepError,
    UserFunctionError,
)
from penstock.graph.transformation import OperatorKind
from penstock.state.backends.memory import MemoryStore
from penstock.state.backends.refs import LocalSnapshot, StagedName
from penstock.state.operator.states import redistribute
from penstock.task import subtask as subtask_module
from penstock.task.messages import CheckpointNotification, NotificationKind
from tests.unit.task.stage_by_hand import CALLS, EMITTED, ByHand

LONGS = ListStateDescriptor("buffer", Types.LONG())


@pytest.fixture(autouse=True)
def _no_functions_left_open() -> Iterator[None]:
    yield
    subtask_module._open_functions.clear()


class Saved(CheckpointedFunction):
    """Keeps what it has seen in a field, and says what is done with it."""

    state: ListState[int]

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        CALLS.append("restored" if context.is_restored() else "new")
        self.state = context.get_operator_state_store().get_list_state(LONGS)
        self.seen = list(self.state.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        CALLS.append(f"snapshot {context.get_checkpoint_id()}")
        self.state.update(self.seen)


class InThrees(FlatMapFunction[int, list[int]], Saved):
    """Holds records back until there are three."""

    def flat_map(self, value: int) -> Iterable[list[int]]:
        self.seen.append(value)
        if len(self.seen) >= 3:
            yield self.seen[:3]
            del self.seen[:3]


def in_threes(directory: Path, **settings: Any) -> ByHand:
    return ByHand(directory, (OperatorKind.FLAT_MAP, "threes", InThrees()), **settings)


def test_a_buffer_in_a_field_survives_a_change_of_worker(tmp_path: Path) -> None:
    stage = in_threes(tmp_path)
    stage.run(range(2))
    assert EMITTED == []
    stage.lose_workers()
    stage.run(range(2, 5))
    assert CALLS[0] == "restored"
    assert EMITTED == [[0, 1, 2]]
    stage.lose_workers()
    stage.run(range(5, 6))
    assert EMITTED == [[3, 4, 5]]


def test_a_kept_instance_is_not_initialised_again(tmp_path: Path) -> None:
    stage = in_threes(tmp_path)
    stage.run(range(2))
    assert CALLS == ["new", "snapshot 1"]
    stage.run(range(2, 3))
    assert CALLS == ["snapshot 1"]
    assert EMITTED == [[0, 1, 2]]


def test_a_kept_instance_and_a_new_one_leave_the_same_version(tmp_path: Path) -> None:
    stages = [in_threes(tmp_path / name) for name in ("kept", "new")]
    for numbers in (range(2), range(2, 7), range(7, 7)):
        kept = stages[0].run(numbers)
        stages[1].lose_workers()
        new = stages[1].run(numbers)
        assert kept[0].operator_state == new[0].operator_state != {}


@pytest.mark.parametrize("in_the_same_worker", [True, False])
def test_a_lost_try_leaves_nothing_in_a_buffer(tmp_path: Path, in_the_same_worker: bool) -> None:
    stage = in_threes(tmp_path)
    stage.run(range(2))
    stage.run(range(2, 4), publish=False)
    if not in_the_same_worker:
        stage.lose_workers()
    stage.run(range(2, 4))
    assert EMITTED == [[0, 1, 2]]
    stage.run(range(4, 6))
    assert EMITTED == [[3, 4, 5]]


class FailsOnce(MapFunction[int, int], Saved):
    """Breaks in the middle of its second micro-batch, as a worker may."""

    broken = False

    def map(self, value: int) -> int:
        if value == 3 and not FailsOnce.broken:
            FailsOnce.broken = True
            raise KeyboardInterrupt
        self.seen.append(value)
        return sum(self.seen)


def test_a_retried_task_starts_from_the_last_published_version(
    tmp_path: Path,
) -> None:
    FailsOnce.broken = False
    stage = ByHand(tmp_path, (OperatorKind.MAP, "sum", FailsOnce()))
    stage.run(range(2))
    with pytest.raises(KeyboardInterrupt):
        stage.run(range(2, 5))
    stage.run(range(2, 5))
    assert CALLS[0] == "restored"
    assert EMITTED == [3, 6, 10]


def test_every_micro_batch_leaves_the_whole_state(tmp_path: Path) -> None:
    stage = in_threes(tmp_path)
    first = stage.run(range(2))[0].operator_state
    assert list(first) == ["threes"]
    assert stage.run()[0].operator_state == first


def test_the_first_instance_of_a_job_is_not_restored_but_in_a_restored_job_it_is(
    tmp_path: Path,
) -> None:
    in_threes(tmp_path / "new").run(range(1))
    assert CALLS[0] == "new"
    restored = in_threes(tmp_path / "restored")
    restored.restored = True
    restored.run(range(1))
    assert CALLS[0] == "restored"


@pytest.mark.parametrize(
    ("parallelism", "emitted"),
    [
        (1, [[0, 1, 10], [11, 20, 21]]),
        (2, [[0, 1, 20], [10, 11, 22]]),
        (4, [[0, 20, 21], [1, 22, 23], [10, 24, 25], [11, 26, 27]]),
    ],
)
def test_a_new_parallelism_redistributes_the_buffers(
    tmp_path: Path, parallelism: int, emitted: list[list[int]]
) -> None:
    old = in_threes(tmp_path / "old", parallelism=2)
    old.run(range(2), range(10, 12))
    versions = [v["threes"] for v in old.published.operator_state]
    new = in_threes(tmp_path / "new", parallelism=parallelism)
    new.published.operator_state = [{"threes": v} for v in redistribute(versions, parallelism)]
    new.restored = True
    new.run(*(range(20 + 2 * i, 22 + 2 * i) for i in range(parallelism)))
    assert emitted == EMITTED


class Members(MapFunction[int, int], CheckpointedFunction):
    """Knows after a restore what all subtasks had seen."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_union_list_state(LONGS)
        self.known = sorted(self.state.get())
        self.mine: list[int] = []

    def map(self, value: int) -> int:
        self.mine.append(value)
        return len(self.known)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update(self.mine)


def test_union_list_state_is_restored_in_full_by_every_subtask(tmp_path: Path) -> None:
    old = ByHand(tmp_path / "old", (OperatorKind.MAP, "members", Members()), parallelism=2)
    old.run(range(2), range(10, 13))
    versions = [v["members"] for v in old.published.operator_state]
    new = ByHand(tmp_path / "new", (OperatorKind.MAP, "members", Members()), parallelism=3)
    new.published.operator_state = [{"members": v} for v in redistribute(versions, 3)]
    new.run(range(1), range(1), range(1))
    assert EMITTED == [5, 5, 5]


class InOrder(MapFunction[int, int], Saved, CheckpointListener):
    """Says everything that is done with it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        CALLS.append("open")

    def map(self, value: int) -> int:
        CALLS.append(f"map {value}")
        return value

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        CALLS.append(f"complete {checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        CALLS.append(f"aborted {checkpoint_id}")

    def close(self) -> None:
        CALLS.append("close")


NOTICES = [
    CheckpointNotification(NotificationKind.COMPLETE, 3),
    CheckpointNotification(NotificationKind.ABORTED, 4),
]


def in_order(directory: Path) -> ByHand:
    return ByHand(directory, (OperatorKind.MAP, "order", InOrder()))


def test_a_new_instance_is_initialised_opened_notified_fed_snapshotted_and_closed(
    tmp_path: Path,
) -> None:
    in_order(tmp_path).run(range(1), checkpoint=7, notifications=NOTICES, end_of_input=True)
    before, behind = ["new", "open"], ["map 0", "snapshot 7", "close"]
    assert [*before, "complete 3", "aborted 4", *behind] == CALLS


def test_a_kept_instance_is_only_notified_fed_and_snapshotted(tmp_path: Path) -> None:
    stage = in_order(tmp_path)
    stage.run(range(1))
    stage.run(range(1, 2), notifications=NOTICES, checkpoint=5)
    assert CALLS == ["complete 3", "aborted 4", "map 1", "snapshot 5"]


def test_a_retried_task_delivers_its_notifications_again(tmp_path: Path) -> None:
    stage = in_order(tmp_path)
    stage.run(range(1))
    for _ in range(2):
        stage.run(notifications=NOTICES[:1], publish=False)
        assert "complete 3" in CALLS


def test_notifications_reach_the_listeners_of_a_chain_only(tmp_path: Path) -> None:
    shared = InOrder()
    steps = [(OperatorKind.MAP, uid, shared) for uid in ("one", "two")]
    stage = ByHand(tmp_path, *steps, (OperatorKind.MAP, "deaf", abs))
    stage.run(notifications=NOTICES[:1])
    assert CALLS.count("complete 3") == 2


def test_at_the_end_of_input_functions_stay_open_if_a_notification_will_follow(
    tmp_path: Path,
) -> None:
    stage = in_order(tmp_path)
    stage.run(range(1), end_of_input=True, keep_open=True)
    assert "close" not in CALLS
    stage.run(notifications=NOTICES[:1], close=True)
    assert CALLS == ["complete 3", "snapshot 4", "close"]
    assert not subtask_module._open_functions


@pytest.mark.parametrize("backend", ["memory", "hashmap"])
def test_a_keyed_step_is_notified_without_any_records(tmp_path: Path, backend: str) -> None:
    stage = ByHand(tmp_path, (OperatorKind.KEYED_MAP, "order", InOrder()), backend=backend)
    stage.run(range(1), end_of_input=True, keep_open=True)
    (ack,) = stage.run(notifications=NOTICES[:1], close=True)
    assert CALLS == ["complete 3", "snapshot 4", "close"]
    assert (ack.records_in, ack.state, ack.outputs) == (0, None, [])


def test_the_last_notification_reaches_a_worker_that_never_had_the_function(tmp_path: Path) -> None:
    stage = in_order(tmp_path)
    stage.run(range(1), end_of_input=True, keep_open=True)
    stage.lose_workers()
    stage.run(notifications=NOTICES[:1], close=True)
    assert CALLS == ["restored", "open", "complete 3", "snapshot 4", "close"]


@pytest.mark.parametrize(
    ("told", "checkpoint"),
    [
        ({}, 1),
        ({"passed": 5}, 6),
        ({"passed": 5, "checkpoint": 8}, 8),
        ({"passed": 5, "notifications": NOTICES}, 6),
        ({"passed": 2, "notifications": NOTICES}, 5),
    ],
)
def test_a_snapshot_id_is_never_that_of_a_passed_checkpoint(
    tmp_path: Path, told: dict[str, Any], checkpoint: int
) -> None:
    in_order(tmp_path).run(**told)
    assert f"snapshot {checkpoint}" in CALLS


def test_steps_that_share_a_function_object_have_an_instance_each(tmp_path: Path) -> None:
    shared = InThrees()
    steps = [(OperatorKind.FLAT_MAP, uid, shared) for uid in ("inner", "outer")]
    stage = ByHand(tmp_path, *steps[:1], (OperatorKind.MAP, "sum", sum), *steps[1:])
    stage.run(range(8))
    stage.lose_workers()
    stage.run(range(8, 9))
    assert EMITTED == [[3, 12, 21]]


class CountingMap(MapFunction[int, int], Saved):
    def map(self, value: int) -> int:
        self.seen.append(value)
        return len(self.seen)


class CountingFilter(FilterFunction[int], Saved):
    def filter(self, value: int) -> bool:
        self.seen.append(value)
        return len(self.seen) > 3


class CountingProcess(ProcessFunction[int, int], Saved):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterable[int]:
        self.seen.append(value)
        yield len(self.seen)


class CountingKeyedProcess(KeyedProcessFunction[int, int, int], Saved):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[int]:
        self.seen.append(value)
        yield len(self.seen) * 100 + (self.last.value() or 0)
        self.last.update(value)


class CountingReduce(ReduceFunction[int], Saved):
    def reduce(self, value1: int, value2: int) -> int:
        self.seen.append(value2)
        return len(self.seen)


class CountingCallable(Saved):
    def __call__(self, value: int) -> int:
        self.seen.append(value)
        return len(self.seen)


@pytest.mark.parametrize(
    ("kind", "function", "emitted"),
    [
        (OperatorKind.MAP, CountingMap(), [3, 4]),
        (OperatorKind.MAP, CountingCallable(), [3, 4]),
        (OperatorKind.KEYED_MAP, CountingMap(), [3, 4]),
        (OperatorKind.FILTER, CountingFilter(), [3]),
        (OperatorKind.KEYED_FILTER, CountingFilter(), [3]),
        (OperatorKind.PROCESS, CountingProcess(), [3, 4]),
        (OperatorKind.KEYED_PROCESS, CountingKeyedProcess(), [301, 402]),
        (OperatorKind.REDUCE, CountingReduce(), [2, 3]),
    ],
)
def test_any_function_of_a_chain_may_have_operator_state(
    tmp_path: Path, kind: OperatorKind, function: Any, emitted: list[int]
) -> None:
    stage = ByHand(tmp_path, (kind, "step", function))
    stage.run(range(2))
    stage.lose_workers()
    stage.run(range(2, 4))
    assert emitted == EMITTED


def test_operator_state_works_in_batch_mode(tmp_path: Path) -> None:
    stage = ByHand(tmp_path, (OperatorKind.KEYED_MAP, "step", CountingMap()), batch_mode=True)
    stage.run(range(2), key_slice=(0, 1))
    stage.lose_workers()
    stage.run(range(2, 4), key_slice=(0, 1), end_of_input=True)
    assert EMITTED == [3, 4]


def test_fields_of_a_checkpointed_function_raise_no_warning(tmp_path: Path) -> None:
    class Plain(MapFunction[int, int]):
        def map(self, value: int) -> int:
            self.last = value
            return value

    steps = [(OperatorKind.MAP, "saved", CountingMap()), (OperatorKind.MAP, "plain", Plain())]
    acks = ByHand(tmp_path, *steps).run(range(2))
    assert acks[0].changed_fields == {"plain": ["last"]}


class Breaks(MapFunction[int, int], Saved, CheckpointListener):
    """Fails in one of its methods."""

    def __init__(self, method: str) -> None:
        self._method = method

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self._maybe("initialize_state")
        super().initialize_state(context)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._maybe("snapshot_state")

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._maybe("notify_checkpoint_complete")

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._maybe("notify_checkpoint_aborted")

    def map(self, value: int) -> int:
        return value

    def _maybe(self, method: str) -> None:
        if method == self._method:
            message = "no such luck"
            raise ValueError(message)


@pytest.mark.parametrize(
    "method",
    [
        "initialize_state",
        "snapshot_state",
        "notify_checkpoint_complete",
        "notify_checkpoint_aborted",
    ],
)
def test_a_method_that_fails_is_named_with_its_step(tmp_path: Path, method: str) -> None:
    stage = ByHand(tmp_path, (OperatorKind.MAP, "breaks", Breaks(method)))
    with pytest.raises(UserFunctionError) as caught:
        stage.run(range(1), notifications=NOTICES)
    first, *traceback = str(caught.value).splitlines()
    assert first == f"step 'breaks' failed in {method}(): ValueError: no such luck"
    assert not any("/penstock/task/" in line or "contextlib" in line for line in traceback)


class Stores(MapFunction[int, int], CheckpointedFunction):
    def __init__(self, descriptor: ListStateDescriptor, element: Any) -> None:
        self._descriptor = descriptor
        self._element = element

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self._state = context.get_operator_state_store().get_list_state(self._descriptor)

    def map(self, value: int) -> int:
        return value

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._state.add(self._element)


def storing(directory: Path, type_info: Any, element: Any) -> ByHand:
    function = Stores(ListStateDescriptor("kept", type_info), element)
    return ByHand(directory, (OperatorKind.MAP, "store", function))


def test_state_beyond_five_megabytes_is_refused_with_step_and_state(tmp_path: Path) -> None:
    stage = storing(tmp_path, Types.STRING(), "x" * 3_000_000)
    stage.run()
    with pytest.raises(OperatorStateTooLargeError, match=r"'store': operator state 'kept' takes 6"):
        stage.run()


def test_an_element_of_another_type_is_refused_with_step_and_state(tmp_path: Path) -> None:
    with pytest.raises(OperatorStateTypeMismatchError, match="'store', operator state 'kept'"):
        storing(tmp_path, Types.LONG(), "text").run()


def test_a_state_whose_type_changed_is_refused_naming_both(tmp_path: Path) -> None:
    old = storing(tmp_path / "old", Types.LONG(), 1)
    old.run()
    new = storing(tmp_path / "new", Types.STRING(), "a")
    new.published.operator_state = old.published.operator_state
    with pytest.raises(StateDeclaredTwiceError, match=r"'kept'.* of LONG .* of STRING"):
        new.run()


class KeyedStateInSnapshot(CountingKeyedProcess):
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.last.update(1)


def test_keyed_state_written_in_snapshot_state_is_refused_not_lost(tmp_path: Path) -> None:
    stage = ByHand(tmp_path, (OperatorKind.KEYED_PROCESS, "keyed", KeyedStateInSnapshot()))
    with pytest.raises(StepError, match=r"in snapshot_state\(\).*belongs to a key"):
        stage.run(range(1))


@pytest.mark.parametrize("backend", ["memory", "hashmap"])
def test_a_backend_that_needs_no_local_snapshot_takes_none(tmp_path: Path, backend: str) -> None:
    steps = [(OperatorKind.KEYED_PROCESS, "keyed", CountingKeyedProcess())]
    stage = ByHand(tmp_path, *steps, backend=backend)
    stage.run(range(2))
    (ack,) = stage.run(range(2, 4), snapshot=True)
    assert ack.snapshot is None
    assert ack.phases["snapshot"] >= 0
    assert EMITTED == [301, 402]


def test_a_local_snapshot_has_the_last_published_version_and_is_taken_before_any_function_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def snapshot(store: MemoryStore, name: StagedName) -> LocalSnapshot:
        CALLS.append("local snapshot")
        return LocalSnapshot(path=f"/local/{name}", version=store.version)

    monkeypatch.setattr(MemoryStore, "snapshot", snapshot)
    stage = ByHand(tmp_path, (OperatorKind.KEYED_PROCESS, "keyed", CountingKeyedProcess()))
    (ack,) = stage.run(range(2))
    assert ack.snapshot is None
    stage.lose_workers()
    (ack,) = stage.run(range(2, 4), snapshot=True)
    assert ack.snapshot == LocalSnapshot(path=f"/local/{ack.name}", version=1)
    assert CALLS[:2] == ["local snapshot", "restored"]
