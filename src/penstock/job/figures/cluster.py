"""The processes that run a job, as the engine and the subtasks report them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from penstock.common.live_figures import ExecutorInfo, StageFigures

IN_DRIVER = "driver"
"""The id of the executor if tasks run in the driver."""


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """What an engine knows of its processes."""

    executors: Sequence[ExecutorInfo] = field(
        default_factory=lambda: [ExecutorInfo(IN_DRIVER, socket.gethostname())]
    )
    ui: str = ""
    """The address of the engine's own UI, empty if there is none."""


def with_executors(
    stages: Sequence[StageFigures], executors: Sequence[ExecutorInfo]
) -> tuple[list[StageFigures], list[ExecutorInfo]]:
    """Return the stages with the executor of each subtask, and the executors with their subtasks.

    Subtasks that name no executor have run in the driver, if that is the only one.
    """
    only = executors[0].id if len(executors) == 1 and executors[0].id == IN_DRIVER else ""
    there: dict[str, dict[int, list[int]]] = {}
    shown = []
    for stage in stages:
        subtasks = [
            replace(s, executor=s.executor or (only if s.host else "")) for s in stage.subtasks
        ]
        for subtask in subtasks:
            there.setdefault(subtask.executor, {}).setdefault(stage.stage, []).append(
                subtask.subtask
            )
        shown.append(replace(stage, subtasks=subtasks))
    return shown, [replace(e, subtasks=there.get(e.id, {})) for e in executors]
