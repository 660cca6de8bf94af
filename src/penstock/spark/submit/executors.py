"""Lists the executors of a Spark application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext

_DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Executor:
    """A process that runs tasks."""

    id: str
    host: str
    cores: int
    memory: int = 0
    """Bytes that its JVM may use for cached data and execution."""
    memory_used: int = 0

    @property
    def is_driver(self) -> bool:
        """Whether it is the driver, in which tasks run if the master is local."""
        return self.id == _DRIVER


def executors(context: SparkContext) -> list[Executor]:
    """Return the executors that are alive; the driver is one only if tasks run in it."""
    # Without a Spark job, because the job group of this thread may have been cancelled.
    listed: Any = context._jsc.sc().statusStore().executorList(True)
    found = []
    for summary in (listed.apply(i) for i in range(listed.size())):
        named: str = summary.hostPort()
        # An executor that has just registered may be listed without its port.
        executor = Executor(
            summary.id(),
            named.rpartition(":")[0] or named,
            summary.totalCores(),
            summary.maxMemory(),
            summary.memoryUsed(),
        )
        if not executor.is_driver or executor.cores:
            found.append(executor)
    return found


def executor_names(context: SparkContext) -> frozenset[str]:
    """Return a name for each executor and for the driver; a cheap way to notice changes."""
    status: Any = context._jsc.sc().getExecutorMemoryStatus()
    names: str = status.keySet().mkString(",")
    return frozenset(names.split(","))
