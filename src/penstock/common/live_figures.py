"""Live figures of a running job: what its driver reports while it is watched."""

from __future__ import annotations

import msgspec

from penstock.common.channel_info import ChannelInfo
from penstock.common.metric_values import MetricInfo

__all__ = [
    "DriverInfo",
    "ExecutorInfo",
    "LiveFigures",
    "OperatorFigures",
    "StageFigures",
    "SubtaskFigures",
]

_INTERVALS_UNTIL_STALE = 3


class SubtaskFigures(msgspec.Struct, frozen=True):
    """The metrics of one subtask of a stage."""

    subtask: int
    executor: str = ""
    """The id of the executor where it ran last; empty if it is not known."""
    host: str = ""
    metrics: dict[str, float] = {}
    """By Flink's names; a metric that is not known is absent."""


class OperatorFigures(msgspec.Struct, frozen=True):
    """The metrics of one operator of a stage's chain."""

    uid: str
    name: str
    subtasks: dict[int, dict[str, float]] = {}
    """Per subtask, the metrics by Flink's names."""


class StageFigures(msgspec.Struct, frozen=True):
    """The metrics of one stage: Flink's job vertex."""

    stage: int
    name: str
    """The chain's operators, in Flink's notation."""
    uids: list[str] = []
    """The operators of the chain, the head first."""
    parallelism: int = 1
    max_parallelism: int = 0
    is_source: bool = False
    region: int = 0
    """The pipelined region that runs the stage."""
    subtasks: list[SubtaskFigures] = []
    operators: list[OperatorFigures] = []


class ExecutorInfo(msgspec.Struct, frozen=True):
    """A process that runs subtasks: Flink's task manager."""

    id: str
    host: str
    slots: int = 1
    """The number of tasks that it can run at the same time."""
    subtasks: dict[int, list[int]] = {}
    """Per stage, the subtasks that ran there last."""
    memory_bytes: int = 0
    """The most memory its JVM may use for data; 0 if it is not known."""
    memory_used_bytes: int = 0


class DriverInfo(msgspec.Struct, frozen=True):
    """The process of the driver: Flink's job manager."""

    host: str
    pid: int
    memory_bytes: int = 0
    """The resident memory of the Python process."""
    started: float = 0.0
    """When the job was started in this process, in seconds since the epoch."""
    spark_ui: str = ""
    """The address of Spark's UI, empty if there is none."""


class LiveFigures(msgspec.Struct, frozen=True):
    """All figures of a running job at one time."""

    time: float
    """When they were taken, in seconds since the epoch, by the driver's clock."""
    attempt: str
    """The running attempt, or the last one if the job is between two attempts."""
    job: dict[str, float] = {}
    """Metrics of the job, by Flink's names."""
    stages: list[StageFigures] = []
    channels: list[ChannelInfo] = []
    executors: list[ExecutorInfo] = []
    driver: DriverInfo | None = None
    user: list[MetricInfo] = []
    """The metrics of the functions."""
    status: str = "RUNNING"
    """RUNNING, or RESTARTING between two attempts."""
    interval: float = 1.0
    """Seconds until the next report, while the job is watched."""

    def is_stale(self, now: float) -> bool:
        """Whether the driver should have reported again: it is dead or stuck, or not watched.

        A time in the future, by the reader's clock, says nothing about now, either.
        """
        return abs(now - self.time) > _INTERVALS_UNTIL_STALE * self.interval
