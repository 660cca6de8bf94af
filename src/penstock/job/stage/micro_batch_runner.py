"""Runs the tries of one micro-batch on the engine."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from penstock.errors import MicroBatchFailedError
from penstock.job.context import AttemptContext
from penstock.job.stage.stage_execution import MicroBatchRequest, MicroBatchRun, StageExecution
from penstock.job.submitter import MicroBatchLostError
from penstock.task.failure import unpack
from penstock.task.messages import Acknowledgement

logger = logging.getLogger("penstock.job")


class StoppedError(Exception):
    """A micro-batch was interrupted because the job ends."""


class MicroBatchRunner:
    """Submits the micro-batches of one region, and repeats a try that the engine lost."""

    def __init__(self, context: AttemptContext, executions: Sequence[StageExecution]) -> None:
        self._context = context
        self._executions = executions
        self._head = executions[0]

    def run(self, request: MicroBatchRequest) -> MicroBatchRun:
        """Run a micro-batch as the next one of every stage.

        Raises:
            StoppedError: the job ends.
            MicroBatchFailedError: the engine lost all tries.
            PenstockError: what a task failed with.
        """
        for execution in self._executions:
            execution.batch += 1
        signals, tries = self._context.signals, self._context.job.settings.max_tries
        started, began = time.time(), time.monotonic()
        lost = ""
        for try_number in range(tries):
            if signals.stopping and try_number:
                raise StoppedError
            try:
                acks = self._try(request, try_number)
            except MicroBatchLostError as error:
                lost = str(error)
                for execution in self._executions:
                    execution.discard_try(try_number)
                if signals.stopping:
                    raise StoppedError from error
                logger.warning(
                    "Stage %r lost try %d of micro-batch %d and repeats it: %s",
                    self._head.stage.name,
                    try_number + 1,
                    self._head.batch,
                    lost,
                )
                continue
            for ack in (a for of_stage in acks for a in of_stage):
                if ack.failure is not None:
                    raise unpack(ack.failure)
            return MicroBatchRun(acks, try_number, started, time.time(), began)
        raise MicroBatchFailedError(self._head.stage.name, self._head.batch, tries, lost)

    def _try(self, request: MicroBatchRequest, try_number: int) -> list[list[Acknowledgement]]:
        self._context.check_owner()
        # One reading of the clock for all tasks of the try.
        now = int(self._context.job.clock() * 1000)
        instructions = [
            e.instruction(request, try_number, now, is_head=e is self._head)
            for e in self._executions
        ]
        return self._context.submitter.run(instructions)
