"""Collects the figures of a running job from what its parts have recorded."""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from penstock.common.live_figures import DriverInfo, LiveFigures
from penstock.common.metric_values import MetricInfo
from penstock.job.figures.cluster import ClusterInfo, with_executors
from penstock.job.figures.job_monitor import JobMonitor
from penstock.job.input.channel_view import ChannelView
from penstock.job.statistics import JobStatistics

logger = logging.getLogger("penstock.job")

_KB = 1024


class RunningAttempt(Protocol):
    """What figures need of the running attempt."""

    @property
    def pending_checkpoints(self) -> int:
        """The number of checkpoints in progress."""
        ...

    def channels(self) -> ChannelView:
        """Return a view of its channels."""
        ...


class JobFigures:
    """The figures of one job over all its attempts; any thread may take them."""

    def __init__(
        self,
        monitor: JobMonitor,
        statistics: JobStatistics,
        cluster: Callable[[], ClusterInfo] = ClusterInfo,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._monitor = monitor
        self._statistics = statistics
        self._cluster = cluster
        self._clock = clock

    def take(self, attempt: str, status: str, running: RunningAttempt | None) -> LiveFigures:
        """Return the figures now; `running` is the running attempt, if one runs."""
        monitor = self._monitor
        counters = {k: c for stage in monitor.stages.values() for k, c in stage.counters().items()}
        user = [
            replace(info, subtasks=counters.get((info.step_uid, info.name), {}))
            if info.kind == "counter"
            else _finite(info)
            for info in self._statistics.infos()
        ]
        cluster = self._cluster_info()
        stages, executors = with_executors(
            [stage.figures() for stage in monitor.stages.values()], cluster.executors
        )
        return LiveFigures(
            time=self._clock(),
            attempt=attempt,
            job=monitor.metrics(0 if running is None else running.pending_checkpoints),
            stages=stages,
            channels=[] if running is None else running.channels().facts(),
            executors=executors,
            driver=DriverInfo(
                socket.gethostname(),
                os.getpid(),
                _resident_bytes(),
                started=monitor.started,
                spark_ui=cluster.ui,
            ),
            user=user,
            status=status,
        )

    def _cluster_info(self) -> ClusterInfo:
        try:
            return self._cluster()
        except Exception as error:
            # The engine is being started or stopped, or its connection is lost.
            logger.debug("the executors are not known: %s", error)
            return ClusterInfo(executors=())


def _resident_bytes() -> int:
    """Return the memory of this process that is in RAM; 0 if the system does not say."""
    try:
        with Path("/proc/self/status").open(encoding="utf-8", errors="replace") as lines:
            sizes = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    except OSError:
        return 0
    return int(sizes[0]) * _KB if sizes else 0


def _finite(metric: MetricInfo) -> MetricInfo:
    """Return a metric without what JSON cannot represent: a function may measure anything."""
    numbers = (metric.mean, metric.least, metric.most)
    mean, least, most = (n if n is not None and math.isfinite(n) else None for n in numbers)
    subtasks = {i: value for i, value in metric.subtasks.items() if math.isfinite(value)}
    return replace(metric, mean=mean, least=least, most=most, subtasks=subtasks)
