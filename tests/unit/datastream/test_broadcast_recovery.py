"""Broadcast state through failures, killed drivers, savepoints and changes of parallelism."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import (
    BroadcastProcessFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.errors import StateDeclaredTwiceError
from penstock.job.launched_job import LaunchedJob
from penstock.testing import Burst, Idle, ScriptedFailures, ScriptedSource
from tests.unit.job.counting import KEYS, Program, checkpoint, counted, die, launched
from tests.unit.support import eventually

RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
UNALIGNED = {"execution__checkpointing__unaligned__enabled": "true"}
FACTOR = 1000
APPLY = 2
"""The stage behind both sources."""


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


class Apply(KeyedBroadcastProcessFunction[int, int, int, str]):
    """Counts the records of a key, and says of each broadcast one which it is of all."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[str]:
        self.count.update((self.count.value() or 0) + 1)
        yield f"{ctx.get_current_key()} {self.count.value()}"
        if value >= FACTOR:
            yield f"told {dict(ctx.get_broadcast_state(RULES).items())}"

    def process_broadcast_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterable[str]:
        state = ctx.get_broadcast_state(RULES)
        state.put(value, (state.get(value) or 0) + 1)
        yield f"rule {value} {state.get(value)} in {self.index}, {len(list(state))} in all"


class PlainApply(BroadcastProcessFunction[int, int, str]):
    """Says of each record what was broadcast."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.inner = Apply()
        self.inner.index = runtime_context.get_index_of_this_subtask()

    def process_element(
        self, value: int, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[str]:
        yield f"told {dict(ctx.get_broadcast_state(RULES).items())}"

    def process_broadcast_element(self, value: int, ctx: Any) -> Iterable[str]:
        return self.inner.process_broadcast_element(value, ctx)


def some_at_a_time(numbers: Sequence[int]) -> list[Any]:
    return [Burst(numbers[i : i + 3]) for i in range(0, len(numbers), 3)]


@dataclass
class Broadcasting(Program):
    """Numbers counted by key, and rules that every subtask keeps."""

    numbers: Sequence[Any] = field(default_factory=lambda: some_at_a_time(range(90)))
    rules: Sequence[Any] = field(default_factory=lambda: some_at_a_time(range(12)))
    descriptor: MapStateDescriptor = RULES
    is_keyed: bool = True

    def build(self) -> StreamExecutionEnvironment:
        env = self.environment()
        numbers = self._source(env, "numbers", self.numbers)
        rules = self._source(env, "rules", self.rules).set_parallelism(1)
        failing = numbers.map(ScriptedFailures(self.root, self.fails), Types.LONG()).uid("failing")
        broadcast = rules.broadcast(self.descriptor)
        if self.is_keyed:
            keyed = failing.key_by(lambda n: n % KEYS, Types.LONG())
            applied = keyed.connect(broadcast).process(Apply())
        else:
            applied = failing.connect(broadcast).process(PlainApply())
        applied.uid(self.uid).sink_to(self.sink()).uid("files")
        return env

    def rule_lines(self) -> list[str]:
        return sorted(line for line in self.lines() if line.startswith("rule"))

    def told(self) -> list[str]:
        return [line for line in self.lines() if line.startswith("told")]

    def _source(
        self, env: StreamExecutionEnvironment, name: str, script: Sequence[Any]
    ) -> DataStream:
        source = ScriptedSource(script, Types.LONG(), self.clock)
        return env.from_source(source, WatermarkStrategy.no_watermarks(), name).uid(name)


def rule_lines(rules: int, parallelism: int) -> list[str]:
    """What comes of each rule once, in every subtask."""
    return sorted(
        f"rule {n} 1 in {subtask}, {n + 1} in all"
        for n in range(rules)
        for subtask in range(parallelism)
    )


def wait_for_input(job: LaunchedJob, records: int) -> None:
    eventually(
        lambda: sum(r.records_in for r in job.micro_batches() if r.stage == APPLY) >= records
    )


@pytest.mark.parametrize(
    ("settings", "backend"), [({}, "hashmap"), (UNALIGNED, "rocksdb")], ids=["aligned", "unaligned"]
)
def test_a_failure_neither_loses_nor_doubles_a_rule_or_a_record(
    tmp_path: Path, settings: dict[str, str], backend: str
) -> None:
    settings = {**settings, "state__backend__type": backend}
    program = Broadcasting(tmp_path, fails=(40, 66), settings=settings)
    program.run()
    assert program.rule_lines() == rule_lines(12, 2)
    counts = [line for line in program.lines() if not line.startswith("rule")]
    assert sorted(counts) == sorted(counted(90))


@pytest.mark.parametrize("is_keyed", [True, False], ids=["keyed", "plain"])
def test_a_killed_driver_finds_the_rules_of_its_checkpoint(tmp_path: Path, is_keyed: bool) -> None:
    quiet: dict[str, Any] = {"numbers": [Idle()], "is_keyed": is_keyed, "interval": "1 h"}
    job = Broadcasting(tmp_path, rules=[Burst(range(3)), Idle()], **quiet).launch()
    wait_for_input(job, 6)
    checkpoint(job)
    die(job)
    # The fourth rule goes down with the driver, and comes again.
    job = Broadcasting(tmp_path, rules=[Burst(range(4)), Idle()], **quiet).launch()
    wait_for_input(job, 2)
    die(job)
    again = Broadcasting(
        tmp_path, numbers=[Burst([FACTOR] * 4)], rules=[Burst(range(5))], is_keyed=is_keyed
    )
    again.run()
    assert again.rule_lines() == rule_lines(5, 2)
    assert len(again.told()) == 4
    known = {"told {0: 1, 1: 1, 2: 1}", "told {0: 1, 1: 1, 2: 1, 3: 1, 4: 1}"}
    assert set(again.told()) <= known | {"told {0: 1, 1: 1, 2: 1, 3: 1}"}


def saved(root: Path, parallelism: int, is_keyed: bool) -> str:
    """A savepoint behind five rules and a few numbers."""
    program = Broadcasting(
        root,
        numbers=[*some_at_a_time(range(9)), Idle()],
        rules=[Burst(range(5)), Idle()],
        parallelism=parallelism,
        is_keyed=is_keyed,
    )
    job = program.launch()
    wait_for_input(job, 9 + 5 * parallelism)
    path = job.savepoint(str(root / "savepoints")).result(20)
    job.cancel()
    assert job.wait_for_end(20)
    return path


@pytest.mark.parametrize(
    ("old", "new", "is_keyed"), [(2, 3, True), (3, 1, False)], ids=["keyed", "plain"]
)
def test_with_another_parallelism_every_subtask_gets_all_rules(
    tmp_path: Path, old: int, new: int, is_keyed: bool
) -> None:
    path = saved(tmp_path, old, is_keyed)
    (tmp_path / "second").mkdir()
    again = Broadcasting(
        tmp_path / "second",
        numbers=[Burst(range(9)), *[Burst([FACTOR + n]) for n in range(9)]],
        rules=[Burst(range(5))],
        parallelism=new,
        is_keyed=is_keyed,
        settings={"execution__state_recovery__path": path},
    )
    again.run()
    assert again.rule_lines() == []
    assert again.told() == ["told {0: 1, 1: 1, 2: 1, 3: 1, 4: 1}"] * 9
    if is_keyed:
        counts = [*Program(tmp_path).lines(), *again.lines()]
        counts = [line for line in counts if line[0].isdigit()]
        # 1000 is one above a multiple of the number of keys, and so on.
        after = [f"{(FACTOR + n) % KEYS} {9 // KEYS + n // KEYS + 1}" for n in range(9)]
        assert sorted(counts) == sorted([*counted(9), *after])


def test_rules_of_another_type_are_rejected(tmp_path: Path) -> None:
    path = saved(tmp_path, 2, is_keyed=False)
    (tmp_path / "second").mkdir()
    changed = MapStateDescriptor("rules", Types.LONG(), Types.STRING())
    settings = {"execution__state_recovery__path": path, "restart_strategy__type": "none"}
    again = Broadcasting(tmp_path / "second", descriptor=changed, is_keyed=False, settings=settings)
    with pytest.raises(
        StateDeclaredTwiceError, match=r"MAP\(LONG, LONG\) .* of MAP\(LONG, STRING\)"
    ):
        again.run()
