"""Functions of two inputs through failures, savepoints and changes of parallelism."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import (
    CheckpointedFunction,
    CheckpointListener,
    CoFlatMapFunction,
    DataStream,
    KeyedCoProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.errors import RestoreMismatchError
from penstock.testing import Burst, Idle, ScriptedFailures, ScriptedSource
from tests.unit.job.counting import (
    KEYS,
    Program,
    checkpoint,
    die,
    launched,
)
from tests.unit.support import environment, eventually

RECORDS = 90
UNALIGNED = {"execution__checkpointing__unaligned__enabled": "true"}
HEARD: list[int] = []
"""Of checkpoints, by functions of this process."""


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


class CountBoth(KeyedCoProcessFunction[int, int, str, str]):
    """Numbers the records of a key, whichever stream they are of."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.counter = runtime_context.get_metrics_group().counter("records")

    def process_element1(self, value: int, ctx: KeyedCoProcessFunction.Context) -> Iterable[str]:
        self.counter.inc()
        self.count.update((self.count.value() or 0) + 1)
        yield f"{ctx.get_current_key()} {self.count.value()}"

    def process_element2(self, value: str, ctx: KeyedCoProcessFunction.Context) -> Iterable[str]:
        return self.process_element1(int(value), ctx)


def some_at_a_time(numbers: Sequence[Any]) -> list[Any]:
    return [Burst(numbers[i : i + 5]) for i in range(0, len(numbers), 5)]


@dataclass
class Connected(Program):
    """Even numbers as numbers, odd ones as texts, counted together by key."""

    even: Sequence[Any] = field(default_factory=lambda: some_at_a_time(range(0, RECORDS, 2)))
    odd: Sequence[Any] = field(
        default_factory=lambda: some_at_a_time([str(n) for n in range(1, RECORDS, 2)])
    )
    key_type: Any = field(default_factory=Types.LONG)

    def build(self) -> StreamExecutionEnvironment:
        env = self.environment()
        even = self._source(env, "even", ScriptedSource(self.even, Types.LONG(), self.clock))
        odd = self._source(env, "odd", ScriptedSource(self.odd, Types.STRING(), self.clock))
        failing = even.map(ScriptedFailures(self.root, self.fails), Types.LONG()).uid("failing")
        (
            failing.connect(odd)
            .key_by(lambda n: n % KEYS, lambda text: int(text) % KEYS, self.key_type)
            .process(CountBoth())
            .uid(self.uid)
            .sink_to(self.sink())
            .uid("files")
        )
        return env

    def _source(
        self, env: StreamExecutionEnvironment, name: str, source: ScriptedSource
    ) -> DataStream:
        return env.from_source(source, WatermarkStrategy.no_watermarks(), name).uid(name)


@pytest.mark.parametrize("settings", [{}, UNALIGNED], ids=["aligned", "unaligned"])
def test_a_failure_neither_loses_nor_doubles_a_record_of_either_stream(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    program = Connected(tmp_path, fails=(40, 66), settings=settings)
    program.run()
    verdict = program.verdict(RECORDS)
    assert verdict.is_exactly_once, verdict


def saved(root: Path, backend: str) -> str:
    """A savepoint behind the first third of both streams."""
    even, odd = range(0, 30, 2), [str(n) for n in range(1, 30, 2)]
    program = Connected(
        root,
        even=[*some_at_a_time(even), Idle()],
        odd=[*some_at_a_time(odd), Idle()],
        settings={"state__backend__type": backend},
    )
    job = program.launch()
    eventually(lambda: sum(r.records_in for r in job.micro_batches() if r.stage == 2) >= 30)
    path = job.savepoint(str(root / "savepoints")).result(20)
    job.cancel()
    assert job.wait_for_end(20)
    return path


@pytest.mark.parametrize(("old", "new"), [("hashmap", "memory"), ("memory", "rocksdb")])
def test_a_savepoint_of_a_keyed_step_of_two_streams_restores(
    tmp_path: Path, old: str, new: str
) -> None:
    path = saved(tmp_path, old)
    settings = {"execution__state_recovery__path": path, "state__backend__type": new}
    (tmp_path / "second").mkdir()
    again = Connected(tmp_path / "second", parallelism=3, settings=settings)
    again.run()
    lines = [*Program(tmp_path).lines(), *again.lines()]
    assert sorted(lines) == sorted(f"{k} {n}" for k in range(KEYS) for n in range(1, 31))


def test_a_savepoint_does_not_restore_into_keys_of_another_type(tmp_path: Path) -> None:
    path = saved(tmp_path, "memory")
    settings = {"execution__state_recovery__path": path}
    (tmp_path / "second").mkdir()
    with pytest.raises(RestoreMismatchError, match="key types cannot change"):
        Connected(tmp_path / "second", key_type=None, settings=settings).run()


class Buffer(CoFlatMapFunction[int, int, Any], CheckpointedFunction, CheckpointListener):
    """Keeps what the first stream brings; the second's records release it."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.kept = store.get_list_state(ListStateDescriptor("buffer", Types.LONG()))
        self.buffer = list(self.kept.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.kept.update(self.buffer)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        HEARD.append(checkpoint_id)

    def flat_map1(self, value: int) -> None:
        self.buffer.append(value)

    def flat_map2(self, value: int) -> Iterable[Any]:
        yield from self.buffer
        self.buffer.clear()


@dataclass
class Buffered(Connected):
    def build(self) -> StreamExecutionEnvironment:
        env = self.environment()
        even = self._source(env, "even", ScriptedSource(self.even, Types.LONG()))
        odd = self._source(env, "odd", ScriptedSource(self.odd, Types.LONG()))
        even.connect(odd).flat_map(Buffer()).uid("buffer").sink_to(self.sink()).uid("files")
        return env


def test_operator_state_of_a_function_of_two_streams_is_restored(tmp_path: Path) -> None:
    HEARD.clear()
    first = Buffered(tmp_path, even=[Burst([1, 2, 3]), Idle()], odd=[Idle()], parallelism=1)
    first.interval = "1 h"
    job = first.launch()
    eventually(lambda: sum(r.records_in for r in job.micro_batches() if r.stage == 2) >= 3)
    number = checkpoint(job)
    second_number = checkpoint(job)
    eventually(lambda: number in HEARD or second_number in HEARD)
    die(job)
    again = Buffered(tmp_path, even=[Burst([1, 2, 3])], odd=[Burst([0])], parallelism=1)
    again.run()
    assert sorted(again.lines()) == ["1", "2", "3"]


def test_counters_count_the_records_of_both_streams() -> None:
    env = environment(2)
    one, two = env.from_collection([1, 2, 3]), env.from_collection(["4"])
    one.connect(two).key_by(lambda n: n, int, Types.LONG()).process(CountBoth()).uid("both").print()
    assert env.execute().get_all_accumulator_results() == {"Keyed Co-Process.records": 4}
