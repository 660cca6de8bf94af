"""The contract of sinks: stage in tasks, publish on the driver, commit with the checkpoint.

Nothing a task does may be seen from outside, because the task may be repeated or its
micro-batch thrown away. So a *writer* in the task only stages, and tells in a few bytes what
it staged. The *publisher* on the driver learns of it once the micro-batch counts. A sink without
a committer makes it visible then, and again if a restored job repeats the micro-batch. One with
a *committer* (`penstock.connectors.committer`) makes it durable at the barrier and visible when
the checkpoint is completed: exactly once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.common.missing_names import AsksForPyFlink
from penstock.connectors.committer import Committer, CommitterContext

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.common.typeinfo import TypeInformation

__all__ = ["PublisherContext", "Sink", "SinkCut", "SinkPublisher", "SinkWriter", "WriterContext"]


@dataclass(frozen=True, slots=True)
class WriterContext:
    """What a writer may know of the task it runs in.

    ``name`` is unique for each task attempt: whatever it stages under that name, no other
    attempt touches it. ``staging_dir`` is a directory of this step, under its own name, that
    driver and tasks share (not necessarily there yet); the engine empties it of micro-batches
    that are published or lost, so nothing in there outlives the publisher's call. ``type_info``
    is the declared type of the values, None if there is none. A sink that must keep what it
    staged until a checkpoint needs it files it under ``job``, the step's name and ``attempt``,
    or in ``work_dir``, that of the step's publisher, where nobody else ever removes anything.
    """

    subtask: int
    parallelism: int
    staging_dir: Path
    name: str
    type_info: TypeInformation | None = None
    job: str = ""
    attempt: str = ""
    work_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class PublisherContext:
    """What a publisher may know of the step it publishes for.

    ``name`` is the step's name. ``work_dir`` is a durable directory of this step, under
    the same name as the ``staging_dir`` of its writers; the same one after a restart, not
    necessarily there yet. ``attempt`` never comes back in the life of ``job``. ``checkpointed``
    is False in a job without any checkpoints: its only cut is the end of the input.
    ``restored`` is what `SinkCut.state` of the restored checkpoint held, in no order, whatever
    the parallelism was then. ``birth`` is the same in all attempts of the job, and another in
    every other job that has the same name, elsewhere or here before it was deleted.
    """

    parallelism: int
    name: str
    work_dir: Path
    job: str
    attempt: str
    checkpointed: bool
    restored: Sequence[bytes] = ()
    birth: str = ""


@dataclass(frozen=True, slots=True)
class SinkCut:
    """What a sink puts into a checkpoint, all of it durable.

    ``committables`` become visible when the checkpoint is completed; ``state`` comes back
    through `PublisherContext.restored`.
    """

    committables: list[bytes] = field(default_factory=list)
    state: list[bytes] = field(default_factory=list)


class SinkWriter(ABC):
    """Takes the values of one subtask in one micro-batch, inside a task.

    Made anew for every task attempt; :meth:`write` for each value, then :meth:`stage` once,
    or :meth:`abort` after an error. An attempt may also vanish without either.
    """

    takes_many: bool = False
    """Whether `write_many` is worth a try: values then wait for each other, if nobody can change
    them meanwhile."""

    @abstractmethod
    def write(self, value: Any) -> None:
        """Take one value; it may be changed by others afterwards."""

    def write_many(self, values: list[Any]) -> bool:
        """Take many values at once, behind those before; or none of them, and say so: False.

        Then each of them comes to :meth:`write`. Only a writer that `takes_many` is asked. It
        refuses what its declared type does not say, and does not keep the list.
        """
        return False

    def write_batch(self, batch: pa.RecordBatch, values: Callable[[], list[Any]]) -> None:
        """Take many values at once, as columns or as what `values` makes of them."""
        many = values()
        if not (self.takes_many and self.write_many(many)):
            for value in many:
                self.write(value)

    @abstractmethod
    def stage(self) -> bytes:
        """Finish, and say what was staged, for the publisher alone to understand.

        The bytes travel in the task's acknowledgement: up to about 64 KiB may be the output
        itself, more goes into files that they name. ``b""`` stands for nothing.
        """

    def abort(self) -> None:  # noqa: B027
        """Throw away what was staged; best effort, since a killed task cannot do it."""


class SinkPublisher(ABC):
    """Takes over staged output, on the driver.

    There is one publisher per sink and attempt of the job, called from one thread; only
    pre-commits run in others.
    """

    @abstractmethod
    def publish(self, staged: Sequence[bytes]) -> None:
        """Take what one micro-batch staged, one entry per subtask in order.

        Called in micro-batch order, once for each micro-batch of this attempt that counts,
        and only with what the winning task attempts staged. A restored job runs the
        micro-batches behind its checkpoint again: a sink that shows output here shows
        it again then.
        """

    def at_barrier(self, checkpoint: int, *, roll_all: bool) -> Callable[[], SinkCut]:
        """Cut off what was published up to now, and return the pre-commit of it.

        Called between two micro-batches, so it must be short. The engine calls the pre-commit
        once, in another thread, while later micro-batches are published; when that returns,
        everything in the cut survives a power loss. With ``roll_all`` (savepoints, the end of the
        input, a stop) nothing may be left in the state.

        A checkpoint may be aborted afterwards. The attempt goes on, and the engine puts the
        committables it got into the next checkpoint. If the pre-commit raised or was not run,
        it got none: then the next one must give them (`penstock.connectors.pre_commits`).
        """
        return SinkCut

    def close(self) -> None:  # noqa: B027
        """Give back resources; called once, also after an error."""


class Sink(AsksForPyFlink, ABC):
    """Where the records of a stream go.

    The user builds it; tasks get copies by cloudpickle, so it is a description without open
    files or connections.
    """

    checks_type: ClassVar[bool] = True
    """Whether a value must fit its declared type before the writer sees it."""

    can_fail: ClassVar[bool] = True
    """Whether a writer's `write` may raise; if not, no step has to be named for it."""

    @abstractmethod
    def writer(self, context: WriterContext) -> SinkWriter:
        """Make the task's half; called in every task attempt."""

    @abstractmethod
    def publisher(self, context: PublisherContext) -> SinkPublisher:
        """Make the driver's half; called once per attempt of the job."""

    def committer(self, context: CommitterContext) -> Committer | None:
        """Make the half that commits, on the driver; None if the sink is not transactional.

        Called once per attempt of the job, and also in one that has nothing left to do but to
        commit what a checkpoint holds.
        """
        return None
