"""Task managers: the executors of running jobs, and the slots they have."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.common.live_figures import ExecutorInfo, LiveFigures
from penstock.recovery.lease import Alive
from penstock.serve.flink_json.statuses import millis
from penstock.serve.flink_json.task_managers import task_manager_id
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.jobs.cached_job import JobView
from penstock.serve.jobs.hex_ids import hex_id
from penstock.serve.rest.metrics import aggregated, selected

_UNKNOWN = -1
_MEMORY = (
    "frameworkHeap",
    "taskHeap",
    "frameworkOffHeap",
    "taskOffHeap",
    "networkMemory",
    "managedMemory",
    "jvmMetaspace",
    "jvmOverhead",
    "totalFlinkMemory",
    "totalProcessMemory",
)
_JVM_METRICS = (
    "nonHeapUsed",
    "nonHeapCommitted",
    "nonHeapMax",
    "directCount",
    "directUsed",
    "directMax",
    "mappedCount",
    "mappedUsed",
    "mappedMax",
    "nettyShuffleMemorySegmentsAvailable",
    "nettyShuffleMemorySegmentsUsed",
    "nettyShuffleMemorySegmentsTotal",
    "nettyShuffleMemoryAvailable",
    "nettyShuffleMemoryUsed",
    "nettyShuffleMemoryTotal",
)


@dataclass(frozen=True, slots=True)
class TaskManager:
    """An executor of a running job."""

    job: JobView
    figures: LiveFigures
    executor: ExecutorInfo

    @property
    def id(self) -> str:
        """Its id: jobs have executors of the same ids."""
        return task_manager_id(self.job, self.executor.id)

    @property
    def assigned(self) -> int:
        """How many subtasks ran there last."""
        return sum(len(subtasks) for subtasks in self.executor.subtasks.values())

    @property
    def free(self) -> int:
        """How many slots have no subtask; several subtasks may share one."""
        return max(0, self.executor.slots - self.assigned)

    @property
    def metrics(self) -> dict[str, float]:
        """What is known of its memory."""
        return {
            "Status.JVM.Memory.Heap.Used": float(self.executor.memory_used_bytes),
            "Status.JVM.Memory.Heap.Max": float(self.executor.memory_bytes),
        }


def task_managers(call: Call) -> Iterator[TaskManager]:
    """Yield the executors of all jobs whose drivers report."""
    for job in call.context.jobs.jobs():
        if isinstance(job.driver, Alive):
            live = call.context.live.of(job)
            if live.figures is not None and not live.is_stale:
                for executor in live.figures.executors:
                    yield TaskManager(job, live.figures, executor)


def listed(call: Call) -> dict[str, Any]:
    """Return all task managers."""
    return {"taskmanagers": [_brief(found) for found in task_managers(call)]}


def detail(call: Call) -> dict[str, Any]:
    """Return one task manager."""
    found = _found(call)
    heap = {
        "heapUsed": found.executor.memory_used_bytes,
        "heapCommitted": found.executor.memory_used_bytes,
        "heapMax": found.executor.memory_bytes,
    }
    slots = [
        {
            "jobId": hex_id(found.job.overview.id),
            "resource": _resource(0, 0),
            "assignedTasks": found.assigned,
        }
    ]
    metrics: dict[str, Any] = heap | dict.fromkeys(_JVM_METRICS, 0) | {"garbageCollectors": []}
    return _brief(found) | {"allocatedSlots": slots if found.assigned else [], "metrics": metrics}


def metrics(call: Call) -> list[dict[str, str]]:
    """Return metrics of one task manager."""
    return selected(call, _found(call).metrics)


def all_metrics(call: Call) -> list[dict[str, Any]]:
    """Return metrics aggregated over task managers."""
    found = list(task_managers(call))
    wanted = call.names("taskmanagers")
    if wanted is not None:
        found = [one for one in found if one.id in wanted]
    return aggregated(call, [one.metrics for one in found])


def slots(call: Call) -> tuple[int, int, int]:
    """Return how many task managers, slots and free slots there are."""
    found = list(task_managers(call))
    return len(found), sum(f.executor.slots for f in found), sum(f.free for f in found)


def _found(call: Call) -> TaskManager:
    id_ = call.path["taskmanagerid"]
    for found in task_managers(call):
        if found.id == id_:
            return found
    raise RestError(404, f"Could not find TaskManager with id {id_}.")


def _brief(found: TaskManager) -> dict[str, Any]:
    executor = found.executor
    heap = executor.memory_bytes
    return {
        "id": found.id,
        "path": f"spark://{executor.host}/{executor.id}",
        "dataPort": _UNKNOWN,
        "jmxPort": _UNKNOWN,
        "timeSinceLastHeartbeat": millis(found.figures.time),
        "slotsNumber": executor.slots,
        "freeSlots": found.free,
        "assignedTasks": found.assigned,
        "totalResource": _resource(executor.slots, heap),
        "freeResource": _resource(found.free, max(0, heap - executor.memory_used_bytes)),
        "hardware": {
            "cpuCores": executor.slots,
            "physicalMemory": _UNKNOWN,
            "freeMemory": _UNKNOWN,
            "managedMemory": 0,
        },
        "memoryConfiguration": dict.fromkeys(_MEMORY, None) | {"taskHeap": heap},
        "blocked": False,
        "penstock-executor": executor.id,
        "penstock-host": executor.host,
        "penstock-job": found.job.overview.id,
        "penstock-subtasks": {str(stage): list(s) for stage, s in executor.subtasks.items()},
        "penstock-age-ms": max(0, millis(time.time() - found.figures.time)),
    }


def _resource(cores: int, heap: int) -> dict[str, Any]:
    return {
        "cpuCores": float(cores),
        "taskHeapMemory": heap >> 20,
        "taskOffHeapMemory": 0,
        "managedMemory": 0,
        "networkMemory": 0,
        "extendedResources": {},
    }


ENDPOINTS = [
    Endpoint("GET", "/taskmanagers", listed, "All task managers: Spark's executors"),
    Endpoint(
        "GET",
        "/taskmanagers/metrics",
        all_metrics,
        "Metrics over task managers",
        query=("get", "agg", "taskmanagers"),
    ),
    Endpoint("GET", "/taskmanagers/:taskmanagerid", detail, "One task manager"),
    Endpoint(
        "GET",
        "/taskmanagers/:taskmanagerid/metrics",
        metrics,
        "Metrics of one task manager",
        query=("get",),
    ),
]
