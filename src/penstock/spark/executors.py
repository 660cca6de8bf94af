"""The executors that Spark has now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext

__all__ = ["Executor", "executors", "names_of_executors"]

_DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Executor:
    """A process that runs tasks."""

    id: str
    host: str
    cores: int


def executors(context: SparkContext) -> list[Executor]:
    """Return the executors that are alive; without the driver, unless tasks run in it."""
    # No job is run to find out: the thread may still be in the group of one that was cancelled.
    listed: Any = context._jsc.sc().statusStore().executorList(True)
    found = []
    for summary in (listed.apply(i) for i in range(listed.size())):
        named: str = summary.hostPort()
        # One that has just come may be known without its port.
        executor = Executor(summary.id(), named.rpartition(":")[0] or named, summary.totalCores())
        if executor.id != _DRIVER or executor.cores:
            found.append(executor)
    return found


def names_of_executors(context: SparkContext) -> frozenset[str]:
    """Return a name for each, and for the driver: quick, to see whether some have come or gone."""
    status: Any = context._jsc.sc().getExecutorMemoryStatus()
    names: str = status.keySet().mkString(",")
    return frozenset(names.split(","))
