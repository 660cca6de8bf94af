"""Side outputs and async calls through failures: exactly once, aligned and unaligned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Time, Types, WatermarkStrategy
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    KeyedProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing import Burst, ScriptedFailures, ScriptedSource
from tests.unit.job.counting import KEYS, Program, launched

RECORDS = 90
ODD = OutputTag("odd", Types.STRING())


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


class Count(KeyedProcessFunction[int, int, str]):
    """Numbers the records of a key; those of odd keys go to the side."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        key = ctx.get_current_key()
        line = f"{key} {self.count.value()}"
        yield (ODD, line) if key % 2 else line


class Asked(AsyncFunction[str, str]):
    async def async_invoke(self, value: str) -> list[str]:
        await asyncio.sleep(0)
        return [value]


@dataclass
class Split(Program):
    """Counts by key, in two outputs that come together again at the sink."""

    def build(self) -> StreamExecutionEnvironment:
        env = self.environment()
        numbers = [Burst(range(i, i + 5)) for i in range(0, RECORDS, 5)]
        source = ScriptedSource(numbers, Types.LONG(), self.clock)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        counted = (
            stream.map(ScriptedFailures(self.root, self.fails), Types.LONG())
            .key_by(lambda n: n % KEYS, Types.LONG())
            .process(Count(), Types.STRING())
        )
        odd = counted.get_side_output(ODD).rebalance()
        asked = AsyncDataStream.unordered_wait(odd, Asked(), Time.minutes(1), 3, Types.STRING())
        counted.union(asked).sink_to(self.sink()).uid("files")
        return env


@pytest.mark.parametrize("unaligned", ["false", "true"], ids=["aligned", "unaligned"])
def test_a_failure_neither_loses_nor_doubles_a_record_of_a_side_output(
    tmp_path: Path, unaligned: str
) -> None:
    settings = {"execution__checkpointing__unaligned__enabled": unaligned}
    program = Split(tmp_path, fails=(40, 66), settings=settings)
    program.run()
    verdict = program.verdict(RECORDS)
    assert verdict.is_exactly_once, verdict
