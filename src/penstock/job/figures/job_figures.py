"""Collects the figures of a running job from its plan, its statistics and its attempt."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from penstock.common.live_figures import (
    DriverInfo,
    LiveFigures,
    OperatorFigures,
    StageFigures,
    SubtaskFigures,
)
from penstock.graph.plan import Plan, Stage
from penstock.job.input.channel_view import ChannelView
from penstock.job.statistics import JobStatistics

_KB = 1024


class JobFigures:
    """The figures of one job over all its attempts; any thread may take them."""

    def __init__(
        self, plan: Plan, statistics: JobStatistics, clock: Callable[[], float] = time.time
    ) -> None:
        self._plan = plan
        self._statistics = statistics
        self._clock = clock
        self._started = clock()

    def take(self, attempt: str, status: str, channels: ChannelView | None) -> LiveFigures:
        """Return the figures now; `channels` are those of the running attempt, if one runs."""
        return LiveFigures(
            time=self._clock(),
            attempt=attempt,
            stages=[_stage(stage) for stage in self._plan.stages],
            channels=[] if channels is None else channels.facts(),
            driver=DriverInfo(
                socket.gethostname(), os.getpid(), _resident_bytes(), started=self._started
            ),
            user=self._statistics.infos(),
            status=status,
        )


def _stage(stage: Stage) -> StageFigures:
    return StageFigures(
        stage=stage.id,
        name=stage.name,
        uids=[str(node.uid) for node in stage.nodes],
        parallelism=stage.parallelism,
        max_parallelism=stage.head.max_parallelism,
        is_source=stage.is_source,
        subtasks=[SubtaskFigures(i) for i in range(stage.parallelism)],
        operators=[OperatorFigures(str(node.uid), node.name) for node in stage.nodes],
    )


def _resident_bytes() -> int:
    """Return the memory of this process that is in RAM; 0 if the system does not say."""
    try:
        with Path("/proc/self/status").open(encoding="utf-8", errors="replace") as lines:
            sizes = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    except OSError:
        return 0
    return int(sizes[0]) * _KB if sizes else 0
