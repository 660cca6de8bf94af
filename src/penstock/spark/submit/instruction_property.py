"""Passes the instructions of a micro-batch to the tasks of its Spark job.

They are in a file, whose path is a local property of the job. Spark binds local properties to a
job when it is submitted, so a retried task can only read the instructions of its own micro-batch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark import SparkContext, TaskContext

from penstock.task.messages import Instruction, decode_instructions

_INSTRUCTION = "penstock.instruction"


def set_instructions(context: SparkContext, path: Path) -> None:
    """Make the jobs that this thread submits next follow the instructions in a file."""
    context.setLocalProperty(_INSTRUCTION, str(path))


def read_instructions(context: TaskContext) -> list[Instruction]:
    """Return the instructions of the job that a task belongs to."""
    path = context.getLocalProperty(_INSTRUCTION)
    assert path is not None
    return decode_instructions(Path(path).read_bytes())


def enter_task(path: Sequence[str]) -> TaskContext:
    """Return the context of the task that this worker runs.

    `path` is the driver's `sys.path`: the user's own modules are imported from the same places.
    """
    sys.path.extend(p for p in path if p not in sys.path)
    context = TaskContext.get()
    assert context is not None
    return context
