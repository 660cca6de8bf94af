"""Numbers through several keyed steps, an exchange before each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.checkpoints.gated_source import GatedSource
from benchmarks.running_job import RunningJob
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.discard import DiscardingSink
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor

Step = KeyedProcessFunction[int, int, int]


class Count(Step):
    """Count the records of each key, and hand on what came."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        self._seen.update((self._seen.value() or 0) + 1)
        yield value


def step_name(number: int) -> str:
    return f"step {number}"


def start(
    source: GatedSource,
    keys: int,
    steps: Sequence[Step],
    settings: Mapping[str, str],
    directory: Path,
) -> RunningJob:
    """Start the job; its checkpoints, if enabled, go below `directory`."""
    job_id = "keyed-chain"
    chosen = {
        "penstock.job-id": job_id,
        "execution.checkpointing.dir": str(directory),
        **settings,
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(chosen))
    stream: Any = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    for number, step in enumerate(steps, 1):
        # Another key at each step: what one subtask had goes to all subtasks of the next.
        stream = (
            stream.key_by(partial(_key, number, keys), key_type=Types.LONG())
            .process(step, output_type=Types.LONG())
            .name(step_name(number))
            .uid(f"step-{number}")
        )
    stream.sink_to(DiscardingSink())
    return RunningJob(env.execute_async("keyed chain"), directory, job_id)


def _key(step: int, keys: int, value: int) -> int:
    return (value + step) % keys
