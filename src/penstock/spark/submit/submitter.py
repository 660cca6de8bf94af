"""Runs the micro-batches of a job on Spark."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

from pyspark import RDD, SparkContext, TaskContext
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.graph.regions import PipelinedRegion
from penstock.ids import StageId
from penstock.job.submitter import MicroBatchLostError, R, W
from penstock.spark.root_cause import root_cause
from penstock.spark.sources.dataframe_source import DataFrameSource
from penstock.spark.submit.anchors import Anchors, drain
from penstock.spark.submit.input_frames import input_frame
from penstock.spark.submit.region_job import RegionJob
from penstock.spark.submit.stage_job import StageJob
from penstock.task.failure import pack, unpack
from penstock.task.messages import Acknowledgement, Instruction

T = TypeVar("T")

_LOCALITY_WAITS = "spark.locality.wait.process", "spark.locality.wait.node"
_LOCALITY_WAIT = "10s"


class SparkSubmitter:
    """Runs the micro-batches of one job on a SparkContext.

    Each region submits from its own thread and in its own scheduler pool.
    """

    def __init__(
        self,
        session: SparkSession,
        job_id: str,
        regions: tuple[PipelinedRegion, ...],
        tasks: dict[StageId, bytes],
        *,
        stay: bool = False,
    ) -> None:
        """Prepare the regions; with `stay`, subtasks wait for a place where they ran before."""
        context = session.sparkContext
        self._context = context
        self._job_id = job_id
        self._broadcasts = {stage: context.broadcast(task) for stage, task in tasks.items()}
        self._anchors = Anchors(context)
        self._stay = stay
        if stay:
            _wait_for_places(context)
        self._jobs: dict[StageId, StageJob | RegionJob] = {}
        """By each stage of a region."""
        # A DataFrame may have fewer partitions than its stage has subtasks.
        self._sparse = {
            r.head.id for r in regions if isinstance(r.head.head.function, DataFrameSource)
        }
        self._regions = {region.head.id: region for region in regions}
        self._generations: dict[StageId, int] = {}
        """Of the anchors that a region uses, by its first stage."""
        self._frames = {
            head: input_frame(session, region, self._broadcasts[head])
            for head, region in self._regions.items()
        }
        self._thread = threading.local()
        self._enter("anchors")
        for region in regions:
            self._prepare(region)

    def run(self, instructions: list[Instruction]) -> list[list[Acknowledgement]]:
        """Run one micro-batch in the pool of the region's first stage; see `Submitter`."""
        head = StageId(instructions[0].stage)
        self._enter(f"stage-{head}")
        if not self._stay:
            self._anchors.follow_executors()
        if self._generations[head] != self._anchors.generation:
            self._prepare(self._regions[head])
        acks = _call(lambda: self._jobs[head].run(instructions))
        return checked(acks, instructions, self._sparse)

    def run_per_subtask(
        self, stage: StageId, purpose: str, function: Callable[[W, int], R], work: list[W]
    ) -> list[R]:
        """Call a function for each subtask in a separate job; see `Submitter`."""
        if not work:
            return []
        # The cleanup after a job must run even if the job was cancelled.
        self._enter(f"{purpose}-{stage}", outlives=purpose == "leave")
        anchor: RDD[Any]
        job = self._jobs[stage]
        if isinstance(job, RegionJob):
            anchor, first = job.anchor(stage)
        else:
            anchor, first = self._anchors.plain(len(work)), 0

        def call(index: int, anchor: Iterable[object]) -> Iterator[tuple[R | None, bytes | None]]:
            drain(anchor)
            task = TaskContext.get()
            assert task is not None
            try:
                yield function(work[index - first], task.taskAttemptId()), None
            except PenstockError as error:
                # Returned, not raised: Spark would retry in vain and hide the error's type.
                yield None, pack(error)

        calls = anchor.mapPartitionsWithIndex(call)
        partitions = list(range(first, first + len(work)))
        results = _call(lambda: list(self._context.runJob(calls, iter, partitions)))
        for _, failure in results:
            if failure is not None:
                raise unpack(failure)
        return [result for result, _ in results]

    def cancel(self) -> None:
        """Cancel every running job of this penstock job."""
        with contextlib.suppress(Exception):
            # Jobs that a loop is about to submit must not run either; no other job uses the group.
            self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._job_id)

    def close(self) -> None:
        """Remove what Spark keeps for the job."""
        self._anchors.close()
        with contextlib.suppress(Exception):
            for broadcast in self._broadcasts.values():
                broadcast.destroy()

    def _prepare(self, region: PipelinedRegion) -> None:
        head = region.head
        self._generations[head.id] = self._anchors.generation
        frame = self._frames[head.id]
        job: StageJob | RegionJob
        if len(region.stages) > 1:
            job = RegionJob(region, self._anchors, self._broadcasts, frame)
        else:
            job = StageJob(head, self._anchors, self._broadcasts[head.id], frame)
        self._jobs.update((stage.id, job) for stage in region.stages)

    def _enter(self, pool: str, *, outlives: bool = False) -> None:
        """Assign the jobs that this thread submits next to this penstock job and to a pool.

        With `outlives` they are not cancelled with the job.
        """
        if getattr(self._thread, "pool", None) != pool:
            # Local properties stay with the thread, so they are set only when the pool changes.
            group = f"{self._job_id}-{pool}" if outlives else self._job_id
            self._context.setJobGroup(group, f"penstock {pool}", interruptOnCancel=True)
            self._context.setLocalProperty("spark.scheduler.pool", pool)
            self._thread.pool = pool


def _wait_for_places(context: SparkContext) -> None:
    """Make tasks wait for the executor or host that they prefer, unless the user has decided it.

    Spark reads these settings for each set of tasks. It waits for a host that is lost, too, so
    they are no longer than other jobs may keep a host busy.
    """
    for key in _LOCALITY_WAITS:
        if context._conf.get(key, None) is None:
            context._conf.set(key, _LOCALITY_WAIT)


def _call(job: Callable[[], T]) -> T:
    try:
        return job()
    except PenstockError:
        raise
    except Exception as error:
        raise MicroBatchLostError(root_cause(str(error))) from error


def checked(
    acks: list[list[Acknowledgement]], instructions: list[Instruction], sparse: Collection[int]
) -> list[list[Acknowledgement]]:
    """Return one acknowledgement per subtask of each stage; unchanged if one reports a failure.

    A stage in `sparse` may have run fewer tasks than it has subtasks.

    Raises:
        MicroBatchLostError: there are too few or too many.
    """
    if any(a.failure is not None for of_stage in acks for a in of_stage):
        return acks
    complete = []
    for of_stage, instruction in zip(acks, instructions, strict=True):
        by_subtask = {a.subtask: a for a in of_stage}
        expected = range(len(instruction.work))
        missing = set(expected) - by_subtask.keys()
        is_sparse = instruction.stage in sparse
        if len(of_stage) + len(missing) != len(expected) or (missing and not is_sparse):
            message = (
                f"stage {instruction.stage}, micro-batch {instruction.batch}: {len(of_stage)} "
                f"acknowledgements, of subtasks {sorted(by_subtask)}"
            )
            raise MicroBatchLostError(message)
        complete.append([by_subtask.get(i) or Acknowledgement(i, f"none-{i}") for i in expected])
    return complete
