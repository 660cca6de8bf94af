"""Side outputs, own partitioners, async calls, shipped files and metrics on a real Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Encoder, Time, Types
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.file_system import FileSink

pytestmark = pytest.mark.spark

ODD = OutputTag("odd", Types.LONG())


class Split(ProcessFunction[int, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.values = runtime_context.get_metrics_group().distribution("values")

    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        self.values.update(value)
        yield (ODD, value) if value % 2 else value


class Doubled(AsyncFunction[int, tuple[str, int, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    async def async_invoke(self, value: int) -> list[tuple[str, int, int]]:
        # Two files that only the workers can import from.
        from shipped_alone import twice  # type: ignore[import-not-found]
        from shipped_package.words import word  # type: ignore[import-not-found]

        await asyncio.sleep(0)
        return [(word(), twice(value), self.subtask)]


def test_the_rest_of_the_api_works_on_workers(tmp_path: Path) -> None:
    alone = tmp_path / "shipped_alone.py"
    alone.write_text("def twice(n):\n    return 2 * n\n")
    package = tmp_path / "library" / "shipped_package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "words.py").write_text("def word():\n    return 'odd'\n")

    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.add_python_file(str(alone))
    env.add_python_file(str(tmp_path / "library"))
    numbers = env.from_collection(range(20), Types.LONG())
    split = numbers.rebalance().process(Split(), Types.LONG()).name("split")
    odd = split.get_side_output(ODD).partition_custom(lambda key, n: key // 10 % n, lambda v: v)
    answers = AsyncDataStream.unordered_wait(odd, Doubled(), Time.minutes(1))
    lines = answers.union(split.map(lambda n: ("even", n, -1))).map(str, Types.STRING())
    encoder = Encoder.simple_string_encoder()
    lines.sink_to(FileSink.for_row_format(str(tmp_path / "out"), encoder).build())
    client = env.execute_async()
    client.get_job_execution_result().result()
    found = [f.read_text() for f in (tmp_path / "out").rglob("part-*")]
    assert sorted("".join(found).splitlines()) == sorted(
        str(("odd", 2 * n, n // 10) if n % 2 else ("even", n, -1)) for n in range(20)
    )
    (values,) = client.get_metrics()
    assert (values.step, values.name, values.count) == ("split", "values", 20)
    assert (values.least, values.most, values.mean) == (0, 19, 9.5)
    live = client.get_live_figures()
    operators = {o.name: o for stage in live.stages for o in stage.operators}
    taken, emitted = (
        sum(metrics[name] for metrics in operators["split"].subtasks.values())
        for name in ("numRecordsIn", "numRecordsOut")
    )
    assert (taken, emitted) == (20, 20)
    # Tasks run in the driver here.
    (executor,) = live.executors
    assert (executor.id, executor.slots > 0, executor.memory_bytes > 0) == ("driver", True, True)
    assert executor.subtasks == {s.stage: list(range(s.parallelism)) for s in live.stages}
