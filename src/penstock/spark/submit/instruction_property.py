"""Passes the instructions of a micro-batch to the tasks of its Spark job.

Small ones are a local property of the job, so that a job which was planned once runs again for each
micro-batch. Spark sends it along with every task, and binds it to a job when that is submitted, so
a retried task can only read the instructions of its own micro-batch.

Large ones go with the function that the tasks run, in a job that is planned for them: every task
would get a copy of the property, and what is too large for a message fails the job. So do all
instructions if Spark writes event logs, where the values of its properties end up: instructions
hold operator state.
"""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from collections.abc import Sequence

from pyspark import SparkContext, TaskContext

from penstock.task.messages import Instruction, decode_instructions

_INSTRUCTION = "penstock.instruction"


_LARGEST_PROPERTY = 32 << 10
_EVENT_LOG = "spark.eventLog.enabled"


class InstructionProperty:
    """Decides whether instructions are small enough for the property, and sets it."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        is_logged = context.getConf().get(_EVENT_LOG, "false") == "true"
        self._largest = 0 if is_logged else _LARGEST_PROPERTY

    def set(self, instructions: bytes) -> bool:
        """Make the jobs that this thread submits next follow these instructions, if they may.

        Otherwise the jobs have none, and their functions must know the instructions.
        """
        is_set = len(instructions) <= self._largest
        value = b64encode(instructions).decode() if is_set else None
        self._context.setLocalProperty(_INSTRUCTION, value)
        return is_set


def read_instructions(context: TaskContext, known: bytes | None) -> list[Instruction]:
    """Return the instructions of the job that a task belongs to.

    `known` is what the task's function knows of them, None if they are in the property.
    """
    if known is None:
        value = context.getLocalProperty(_INSTRUCTION)
        assert value is not None
        known = b64decode(value)
    return decode_instructions(known)


def enter_task(path: Sequence[str]) -> TaskContext:
    """Return the context of the task that this worker runs.

    `path` is the driver's `sys.path`: the user's own modules are imported from the same places.
    """
    sys.path.extend(p for p in path if p not in sys.path)
    context = TaskContext.get()
    assert context is not None
    return context
