"""How a Spark job tells its tasks which micro-batch it is.

By a local property of the job, bound to it by Spark: a retried task can only ever read its own
instruction.
"""

from __future__ import annotations

from pathlib import Path

from pyspark import SparkContext, TaskContext

from penstock.task.messages import Instruction, decode_instructions

_INSTRUCTION = "penstock.instruction"


def tell(context: SparkContext, path: Path) -> None:
    """Let the jobs that this thread submits next follow the instructions in a file."""
    context.setLocalProperty(_INSTRUCTION, str(path))


def told_instructions(context: TaskContext) -> list[Instruction]:
    """Return what the job of a task was told."""
    path = context.getLocalProperty(_INSTRUCTION)
    assert path is not None
    return decode_instructions(Path(path).read_bytes())
