"""Hosts that share no directory, in one process: each subtask runs on one of two.

What a host has to itself is a directory of its own, which only its subtasks find. The driver is on
a third host. From time to time all subtasks change hosts, as those of lost executors do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.common.configuration import Configuration
from penstock.connectors.staging import staged_output
from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.plan import Plan
from penstock.graph.regions import PipelinedRegion
from penstock.ids import StageId
from penstock.job.launch import launch
from penstock.job.launched_job import LaunchedJob
from penstock.job.submitter import R, W
from penstock.state.local_dir import HostDir
from penstock.task import subtask
from penstock.task.messages import Acknowledgement, Instruction
from penstock.task.shuffle import level
from penstock.task.subtask import TaskAttempt
from penstock.testing.inline import InlineSubmitter

HOSTS = 2
_here = threading.local()
_moves = 0


Missing = Callable[[Sequence[Path]], Mapping[Path, str]]


def share_nothing(paths: Sequence[Path]) -> Mapping[Path, str]:
    """Say that a host lacks the work directory."""
    # Sources and sinks of these jobs have paths that all hosts share.
    return {paths[0]: "host-0"}


def separate_tasks(
    env: StreamExecutionEnvironment,
    directory: Path,
    moves: Collection[int],
    missing: Missing = share_nothing,
) -> None:
    """Run the jobs of an environment on separate hosts; `moves` are micro-batches of all stages."""
    vars(level)["run_subtask"] = _run_subtask
    HostDir._roots = lambda self: (directory / getattr(_here, "host", "driver"),)  # type: ignore[method-assign]
    # So that little output is enough to be handed over in files.
    staged_output._MAX_ACKNOWLEDGED_BYTES = 16
    env._launcher = _launcher(moves, missing)


def _run_subtask(
    task: bytes, instruction: Instruction, attempt: TaskAttempt, *more: Any
) -> Acknowledgement:
    return _on_host(attempt.subtask, lambda: subtask.run_subtask(task, instruction, attempt, *more))


def _on_host(number: int, function: Callable[[], R]) -> R:
    _here.host = f"host-{(number + _moves) % HOSTS}"
    try:
        return function()
    finally:
        del _here.host


class _Submitter(InlineSubmitter):
    """Calls everything of a subtask on its host."""

    runs = 0

    def __init__(
        self,
        regions: tuple[PipelinedRegion, ...],
        tasks: dict[StageId, bytes],
        moves: Collection[int],
    ) -> None:
        super().__init__(regions, tasks)
        self._moving = moves

    def run(self, instructions: list[Instruction]) -> list[list[Acknowledgement]]:
        global _moves
        _Submitter.runs += 1
        _moves += _Submitter.runs in self._moving
        return super().run(instructions)

    def run_per_subtask(
        self, stage: StageId, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        run = super().run_per_subtask

        def call(number: int) -> R:
            return _on_host(number, lambda: run(stage, purpose, function, [work[number]])[0])

        return list(map(call, range(len(work))))


def _launcher(
    moves: Collection[int], missing: Missing
) -> Callable[[Plan, Configuration, bool], LaunchedJob]:
    def launcher(plan: Plan, configuration: Configuration, batch_mode: bool) -> LaunchedJob:
        return launch(
            plan,
            configuration,
            batch_mode,
            lambda regions, _job, tasks, _stay: _Submitter(regions, tasks, moves),
            missing_on_hosts=missing,
        )

    return launcher
