"""Contract of sinks: tasks stage, the driver publishes, a completed checkpoint commits.

A task may be retried and its micro-batch discarded, so nothing it does may be visible outside. A
*writer* in the task therefore only stages output, and describes it in a few bytes. The *publisher*
on the driver gets them when the micro-batch counts. A sink without a committer makes its output
visible then, and once more if a restored job repeats the micro-batch: at least once. A sink with a
*committer* (`penstock.connectors.contracts.committer`) makes its output durable at the barrier
(pre-commit), and visible when the checkpoint completes: exactly once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.common.pyflink.missing_names import ExplainsMissingMethods
from penstock.common.storage_url import StorageUrl
from penstock.connectors.contracts.committer import Committer, CommitterContext

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.common.typeinfo import TypeInformation


class DeliveryGuarantee(Enum):
    """How often a record is delivered in a job with checkpoints when something fails."""

    EXACTLY_ONCE = 0
    """Exactly once; visible when the next checkpoint completes."""

    AT_LEAST_ONCE = 1
    """Never lost; delivered again if the job is restored."""

    NONE = 2
    """May be lost or delivered again."""


@dataclass(frozen=True, slots=True)
class WriterContext:
    """What a writer may know about its task.

    ``name`` is unique to the task attempt: no other attempt touches what is staged under it.
    ``staging_dir`` is a directory of this step, with the step's name, that driver and tasks share;
    it is not necessarily created yet. The engine removes the files of published and discarded
    micro-batches from it, so nothing in it outlives `SinkPublisher.publish`. ``type_info`` is the
    declared type of the values, None if there is none. Output that has to stay until its checkpoint
    is committed goes into ``work_dir``, the publisher's durable directory, or into a place of the
    sink's own, under ``job_instance``, the step's name and ``attempt``: the engine removes nothing
    there. ``store`` is the publisher's. ``job`` alone does not identify a job: others may have the
    same id.

    If hosts share no directory, these two have other paths on the driver. Then the engine brings
    the files whose names contain ``name`` there, under the same names, before they are published.
    """

    subtask: int
    parallelism: int
    staging_dir: Path
    name: str
    type_info: TypeInformation | None = None
    job: str = ""
    attempt: str = ""
    work_dir: Path | None = None
    job_instance: str = ""
    store: StorageUrl | None = None


@dataclass(frozen=True, slots=True)
class PublisherContext:
    """What a publisher may know about its step.

    ``name`` is the step's name. ``staging_dir`` is that of its writers. ``work_dir`` is a durable
    directory of this step, of the same name: the same one after a restart, and not necessarily
    created yet. ``attempt`` is unique within ``job``. ``checkpointed`` is False in a job without
    checkpoints, which has its only barrier at the end of the input. ``restored`` is the
    `SinkSnapshot.state` of the restored checkpoint, in no order, whatever the parallelism was then.
    ``job_instance`` is the same in all attempts of the job, and different in every other job of the
    same name, elsewhere or deleted before. ``type_info`` is the declared type of its values.

    ``store`` is None if ``work_dir`` itself is durable. If not, ``work_dir`` is only this driver's
    copy, and ``store`` the durable place of this step's files, the same one after a restart: what
    a checkpoint needs has to be there (`penstock.storage.storages.storage_at`).
    """

    parallelism: int
    name: str
    work_dir: Path
    job: str
    attempt: str
    checkpointed: bool
    restored: Sequence[bytes] = ()
    job_instance: str = ""
    type_info: TypeInformation | None = None
    store: StorageUrl | None = None
    staging_dir: Path = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class SinkSnapshot:
    """A sink's part of a checkpoint, all of it durable.

    ``committables`` become visible when the checkpoint completes; ``state`` is restored through
    `PublisherContext.restored`.
    """

    committables: list[bytes] = field(default_factory=list)
    state: list[bytes] = field(default_factory=list)


class SinkWriter(ABC):
    """Writes the values of one subtask in one micro-batch, inside a task.

    Unlike Flink's it does not outlive the micro-batch: state and commits are the publisher's.

    Created for every task attempt and called by its thread: :meth:`write` for each value, then
    :meth:`stage` once, or :meth:`abort` after an error. A killed attempt calls neither.
    """

    supports_write_many: bool = False
    """Whether to try `write_many`: values that no function can change any more are then collected
    and written together."""

    @abstractmethod
    def write(self, value: Any) -> None:
        """Write one value; its producer may change it afterwards."""

    def write_many(self, values: list[Any]) -> bool:
        """Write many values after those before; or write none of them and return False.

        If it returns False, each value is passed to :meth:`write`. Only called if
        ``supports_write_many``. It refuses values that do not have the declared type, and does not
        keep the list.
        """
        return False

    def write_batch(self, batch: pa.RecordBatch, values: Callable[[], list[Any]]) -> None:
        """Write many values, given as columns and by a function that makes values of them."""
        many = values()
        if not (self.supports_write_many and self.write_many(many)):
            for value in many:
                self.write(value)

    @abstractmethod
    def stage(self) -> bytes:
        """Finish, and return what was staged, in a form that only the publisher reads.

        Called once, after the last write. The bytes travel in the task's acknowledgement: up to
        about 64 KiB may be the output itself, more goes into files that they name. ``b""`` stands
        for no output.
        """

    def abort(self) -> None:  # noqa: B027
        """Remove what was staged; best effort, because a killed task does not call it."""


class SinkPublisher(ABC):
    """Takes over staged output, on the driver.

    There is one publisher per sink and attempt of the job. The loop of its stage calls it from one
    thread; only pre-commits run in another one, the stage's checkpoint executor.
    """

    @abstractmethod
    def publish(self, staged: Sequence[bytes]) -> None:
        """Take over what one micro-batch staged: one entry per subtask, in order.

        Called in the order of micro-batches, once per micro-batch of this attempt that counts, and
        only with the output of the winning task attempts. A restored job repeats the micro-batches
        after its checkpoint: a sink that makes output visible here does so again.
        """

    def discard_staged(self, prefix: str) -> None:  # noqa: B027
        """Remove, as far as possible, what the tasks of a lost try staged in the sink's own place.

        Their `WriterContext.name` begins with ``prefix``. They are never published. Called before
        the micro-batch runs again; the engine itself removes what is in ``staging_dir``.
        """

    def at_barrier(self, checkpoint: int, *, flush: bool) -> Callable[[], SinkSnapshot]:
        """Freeze what was published so far, and return a function that pre-commits it.

        It does what `prepareCommit` and `snapshotState` of a writer do in Flink.

        Called between two micro-batches, so it must be short. The engine calls the pre-commit once,
        in the checkpoint executor, while later micro-batches are published. When that returns,
        everything in the snapshot survives a power loss. With ``flush`` (savepoints, the end of the
        input, a stop) all output becomes committables and no state may remain.

        The checkpoint may be aborted afterwards. The attempt continues, and the engine puts the
        committables it got into the next checkpoint. If the pre-commit raised or was not run, it
        got none, and the next pre-commit must return them; `PreCommits` does that.
        """
        return SinkSnapshot

    def close(self) -> None:  # noqa: B027
        """Release resources; called once, also after an error."""


class Sink(ExplainsMissingMethods, ABC):
    """Consumes the records of a stream.

    The user builds it, and tasks get copies by cloudpickle: it is a description without open files
    or connections.
    """

    checks_type: ClassVar[bool] = True
    """Whether values are checked against their declared type before the writer gets them."""

    can_fail: ClassVar[bool] = True
    """Whether a writer's `write` may raise; if not, the engine need not name the step in errors."""

    def paths_on_hosts(self) -> Sequence[Path]:
        """Return directories in which driver and tasks write, which all hosts must share."""
        return ()

    def with_storage_options(self, options: Mapping[str, str]) -> Sink:
        """Return this sink with the settings of stores; called once, when the job starts.

        They may hold credentials: they travel to the tasks with the sink, and nowhere else.
        """
        return self

    def unpickles(self, type_info: TypeInformation | None) -> bool:
        """Whether it unpickles what it has put into snapshots, for records of this type."""
        return False

    @abstractmethod
    def writer(self, context: WriterContext) -> SinkWriter:
        """Create the writer, in the task; called in every task attempt."""

    @abstractmethod
    def publisher(self, context: PublisherContext) -> SinkPublisher:
        """Create the publisher, on the driver; called once per attempt of the job."""

    def committer(self, context: CommitterContext) -> Committer | None:
        """Create the committer, on the driver; None if the sink is not transactional.

        Called once per attempt of the job, also in one that only commits what a checkpoint holds.
        """
        return None
