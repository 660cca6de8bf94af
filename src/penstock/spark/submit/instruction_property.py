"""Passes the instructions of a micro-batch to the tasks of its Spark job.

They are a local property of the job, which Spark sends along with every task. It binds local
properties to a job when that is submitted, so a retried task can only read the instructions of its
own micro-batch.
"""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from collections.abc import Sequence

from pyspark import SparkContext, TaskContext

from penstock.task.messages import Instruction, decode_instructions, encode

_INSTRUCTION = "penstock.instruction"


def set_instructions(context: SparkContext, instructions: Sequence[Instruction]) -> None:
    """Make the jobs that this thread submits next follow these instructions."""
    context.setLocalProperty(_INSTRUCTION, b64encode(encode(instructions)).decode())


def read_instructions(context: TaskContext) -> list[Instruction]:
    """Return the instructions of the job that a task belongs to."""
    instructions = context.getLocalProperty(_INSTRUCTION)
    assert instructions is not None
    return decode_instructions(b64decode(instructions))


def enter_task(path: Sequence[str]) -> TaskContext:
    """Return the context of the task that this worker runs.

    `path` is the driver's `sys.path`: the user's own modules are imported from the same places.
    """
    sys.path.extend(p for p in path if p not in sys.path)
    context = TaskContext.get()
    assert context is not None
    return context
