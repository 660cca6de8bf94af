"""Helpers for programs in tests: an environment that runs in this process, and its results."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from penstock.common import Configuration
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.graph.plan import Plan
from penstock.graph.regions import PipelinedRegion
from penstock.ids import StageId
from penstock.job.launch import launch
from penstock.job.launched_job import LaunchedJob
from penstock.job.submitter import R, W
from penstock.task.messages import Acknowledgement, Instruction
from penstock.testing.inline import InlineSubmitter, run_inline


def environment(parallelism: int = 1, **settings: str) -> StreamExecutionEnvironment:
    """An environment without Spark; `__` in a setting stands for a dot, `_` for a hyphen."""
    configuration = Configuration()
    for name, value in settings.items():
        configuration.set_string(name.replace("__", ".").replace("_", "-"), value)
    env = run_inline(StreamExecutionEnvironment.get_execution_environment(configuration))
    return env.set_parallelism(parallelism)


def collected(stream: DataStream) -> list[Any]:
    """Run the program and return the records of one stream."""
    with stream.execute_and_collect() as records:
        return list(records)


def plan_of(env: StreamExecutionEnvironment, name: str = "job") -> Plan:
    return env._plan(name)


class WatchedSubmitter:
    """Runs micro-batches inline and calls hooks before and after the tasks of each."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.acknowledgements: list[list[Acknowledgement]] = []
        self.purposes: list[str] = []
        """Of what was done with state between micro-batches, one per subtask."""
        self._inner: InlineSubmitter | None = None

    def watch(self, env: StreamExecutionEnvironment) -> StreamExecutionEnvironment:
        """Let an environment run its jobs here."""
        env._launcher = self._launch
        return env

    def before(self, instruction: Instruction) -> None:
        """Look at, or hold, a try of a micro-batch."""

    def after(self, instruction: Instruction) -> None:
        """Look at, or lose, a try whose tasks have staged everything."""

    def stages(self) -> list[int]:
        return [i.stage for i in self.instructions]

    def run(self, instructions: list[Instruction]) -> list[list[Acknowledgement]]:
        assert self._inner is not None
        self.instructions += instructions
        for instruction in instructions:
            self.before(instruction)
        acks = self._inner.run(instructions)
        self.acknowledgements += acks
        for instruction in instructions:
            self.after(instruction)
        return acks

    def run_per_subtask(
        self, stage: StageId, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        assert self._inner is not None
        made = self._inner.run_per_subtask(stage, purpose, function, work)
        self.purposes += [purpose] * len(made)
        return made

    def cancel(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _launch(self, plan: Plan, configuration: Configuration, batch_mode: bool) -> LaunchedJob:
        def submitter(
            groups: tuple[PipelinedRegion, ...], name: str, tasks: dict[StageId, bytes], stay: bool
        ) -> WatchedSubmitter:
            self._inner = InlineSubmitter(groups, tasks)
            return self

        return launch(plan, configuration, batch_mode, submitter)


def eventually(
    condition: Callable[[], bool], seconds: float = 60.0, every_s: float = 0.005
) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(every_s)
