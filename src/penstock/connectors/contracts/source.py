"""Contract of sources: the driver plans ranges, tasks read them.

A source has two halves. Its *enumerator* (Flink's split enumerator) runs on the driver and divides
the input into explicit ranges, one plan per micro-batch. Its :meth:`Source.read` runs in the tasks
and turns one range into records. Nothing else passes between the halves, so a range must describe
its records completely: every read of it returns the same ones, in any process.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec

from penstock.common.storage_url import StorageUrl
from penstock.connectors.contracts.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.common.typeinfo import TypeInformation
    from penstock.connectors.contracts.input_settings import InputSettings

CHUNK_RECORDS = 65_536
"""Maximum number of records in a chunk that :meth:`Source.read` yields."""


@dataclass(frozen=True, slots=True)
class TimestampedChunk:
    """Records of one split with the event timestamps that the source has for them."""

    split: str
    records: list[Any]
    times: list[int]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.records)

    def __getitem__(self, index: int) -> Any:
        return self.records[index]


Chunk: TypeAlias = "list[Any] | pa.Array | TimestampedChunk"
"""Some records in order; an Arrow array if the source can produce one."""

RecordList: TypeAlias = "list[Any] | TimestampedChunk"
"""Some records in order, as Python objects."""


class Boundedness(Enum):
    """Whether a source ends by itself."""

    BOUNDED = "BOUNDED"
    CONTINUOUS_UNBOUNDED = "CONTINUOUS_UNBOUNDED"


class SplitRange(msgspec.Struct, frozen=True):
    """A range of one split, read by one subtask in one micro-batch.

    ``split`` is the split's stable id: a file's path, a log's directory, ``"0"``. ``start`` is
    inclusive and ``end`` exclusive, in the source's own unit (rows or bytes). ``identity`` is how
    the source recognises the split when it reads it; None if a split cannot change.
    """

    split: str
    start: int
    end: int
    identity: tuple[int, int, int] | None = None


ReadPlan: TypeAlias = list[list[SplitRange]]
"""What the subtasks read in one micro-batch: one list per subtask, in order."""


def _owns_job() -> None:
    """Do nothing: without a lease there is no other driver."""


@dataclass(frozen=True, slots=True)
class EnumeratorContext:
    """What an enumerator may know about its job.

    ``work_dir`` is a durable directory of this source alone, named after its uid: the same one
    after a restart, and not necessarily created yet. If ``store`` is not None, ``work_dir`` is only
    this driver's copy, and ``store`` the durable place. ``clock`` returns the time of day
    in seconds, which may be set back; ``monotonic`` is for intervals and timeouts.
    ``wake`` notifies the stage's loop that a plan would now return something; it may be called from
    any thread, and superfluous calls are harmless. ``attempt`` is unique within ``job``;
    `penstock.ids.attempt_number` orders attempts. ``checkpointed`` is False in a job without
    checkpoints. ``lineage`` is the same in all attempts that resume from one another, and different
    in every job that starts without restored state, whatever its name. ``job_instance`` tells jobs
    of the same name apart: only attempts of one instance can be compared. ``check_owner`` raises
    `FencedError` if another driver has taken the job: a thread of the enumerator calls it before it
    changes anything outside, for example commits an offset. With
    ``complete_positions`` (at-most-once) a restored job may get newer positions than state:
    :meth:`positions` must then say everything that was planned.
    """

    parallelism: int
    work_dir: Path
    clock: Callable[[], float]
    wake: Callable[[], None]
    job: str = ""
    attempt: str = ""
    checkpointed: bool = True
    lineage: str = ""
    check_owner: Callable[[], None] = _owns_job
    complete_positions: bool = False
    job_instance: str = ""
    monotonic: Callable[[], float] = time.monotonic
    store: StorageUrl | None = None


class SourceEnumerator(ABC):
    """Decides on the driver what each micro-batch reads.

    There is one enumerator per source and attempt of the job. The loop of the source's stage makes
    all calls from one thread: the ``restore`` methods first, then :meth:`start`, and :meth:`close`
    last. Threads that the enumerator starts itself reach the loop only through ``wake``.

    Positions, :meth:`snapshot_state` and :meth:`snapshot_files` are the source's part of a
    checkpoint: a restored enumerator continues exactly there. After a crash of the driver,
    everything planned after the last checkpoint is planned again, possibly in other ranges, and
    must return the same records in the same order within each split.
    """

    def restore_state(self, state: bytes) -> None:  # noqa: B027
        """Restore what :meth:`snapshot_state` returned for the restored snapshot.

        Called at most once, before :meth:`start`; not called if it returned nothing.
        """

    def restore_files(self, directory: Path) -> None:  # noqa: B027
        """Receive the directory of the files that :meth:`snapshot_files` named.

        Called at most once, before :meth:`start`; not called if there are none. All files exist and
        are verified. They belong to the snapshot and must not be changed.
        """

    @abstractmethod
    def start(self, positions: Mapping[str, int]) -> None:
        """Start at these positions, or at the beginning if there are none.

        Called once. May start threads and open connections. If the source cannot be used, this or
        :meth:`Source.enumerator` raises.
        """

    @abstractmethod
    def plan(self, max_records: int) -> ReadPlan:
        """Return the ranges of the next micro-batch, and advance past them.

        The result has one list per subtask, some of which may be empty, or is ``[]`` if there is
        nothing to read now. ``max_records`` is the limit for all subtasks together; a source that
        cannot count before it reads only aims at it. Ranges of one split ascend with the subtask
        index, so that reading the subtasks one after the other keeps the split's order.

        Errors that happened since the last call (a lost connection) are raised from here.
        """

    @abstractmethod
    def positions(self) -> dict[str, int]:
        """Return for each split the position after the last planned range.

        Called at every barrier, between two micro-batches.
        """

    def snapshot_state(self) -> bytes:
        """Return what else a restored enumerator needs, at most a few MiB.

        Called at every barrier, together with :meth:`positions`.
        """
        return b""

    def snapshot_files(self) -> SnapshotFiles | None:
        """Name the enumerator's own files that belong to what :meth:`snapshot_state` returned.

        Called at every barrier, right after it. The files must not change until :meth:`release`
        allows it. A checkpoint names them, and completes once they read back as described; a
        savepoint gets copies.
        """
        return None

    @abstractmethod
    def finished(self) -> bool:
        """Whether all input there will ever be is planned; once True, always True."""

    def parallel_splits(self) -> Collection[str]:
        """Name the splits that are read in parallel, so that the watermark waits for all of them.

        Splits that are read one after the other, such as files, hold back the watermark only once
        they are started, and need not be named.
        """
        return ()

    def is_finished(self, split: str) -> bool:
        """Whether a split is planned to its end, so that it no longer holds back the watermark."""
        return False

    def pending_records(self) -> int | None:
        """Return how many records that there are have not been planned, None if it is not known.

        Called after every micro-batch, for a metric: it must not wait for anything.
        """
        return None

    def observe(self, records: int, ranges: Sequence[SplitRange]) -> None:  # noqa: B027
        """Learn how many records the ranges of a published micro-batch had.

        Called after publication, but not for every plan and not after a restore: use it for
        estimates only.
        """

    def next_poll(self) -> float | None:
        """Return after how many seconds :meth:`plan` may return something without a ``wake``.

        0 means at once, None that only ``wake`` announces new input.
        """
        return None if self.finished() else 0.0

    def notify_checkpoint_complete(self, positions: Mapping[str, int]) -> None:  # noqa: B027
        """Learn that a checkpoint with these positions of this source is complete.

        Nothing before them is ever read again by this job: the place to commit offsets or
        acknowledge messages. Called between two micro-batches, and before :meth:`close` if a
        checkpoint completed since. A call may be missing (after a crash, or when a newer checkpoint
        completed in the meantime). Savepoints are not notified, except the one a job stops with.
        An exception fails the job.
        """

    def notify_state_complete(self, state: bytes) -> None:  # noqa: B027
        """Learn that a checkpoint with this result of :meth:`snapshot_state` is complete.

        Called right before :meth:`notify_checkpoint_complete`, under the same conditions.
        """

    def release(self, positions: Mapping[str, int]) -> None:  # noqa: B027
        """Learn that no restore will ever read anything below these positions.

        Called after checkpoints were discarded, with the lowest positions of all retained
        checkpoints and savepoints. A source that keeps copies of its input may delete them up to
        there. May repeat, and may never be called.
        """

    def close(self) -> None:  # noqa: B027
        """Stop threads and release resources; called once, also after an error."""


class Source(ABC):
    """Produces the records of a stream.

    The user builds it, the driver calls :meth:`enumerator`, and every task gets its own copy by
    cloudpickle: it is a description and has no open connections, files or threads.
    """

    keeps_files: ClassVar[str | None] = None
    """What its enumerator has in files of ``work_dir`` that must outlive the driver, and that it
    cannot put into a store; None if nothing. Such a source needs `penstock.ingestion.dir` where the
    job's directory is in a store."""

    reads_work_dir: ClassVar[bool] = False
    """Whether its tasks read files that its enumerator has in ``work_dir``, which all hosts must
    share then."""

    @abstractmethod
    def boundedness(self) -> Boundedness:
        """Whether this source ends by itself."""

    def paths_on_hosts(self) -> Sequence[Path]:
        """Return paths that tasks read, which must exist on every host."""
        return ()

    def type_info(self) -> TypeInformation | None:
        """Return the type of the records; None if the source does not know it."""
        return None

    def default_parallelism(self) -> int | None:
        """Return how many subtasks read this source unless the user sets it; None: as the job."""
        return None

    @abstractmethod
    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        """Create the enumerator, on the driver; called once per attempt of the job."""

    @abstractmethod
    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        """Yield the records of a range in order, in chunks of at most ``CHUNK_RECORDS``.

        Called in a task, once per range of its plan. A retried task, a repeated micro-batch or a
        restored job reads the range again, and must get the same records.
        """

    def with_settings(self, settings: InputSettings) -> Source:
        """Return this source with the settings of its job; called once, when the job starts."""
        return self

    def with_timestamps(self) -> Source:
        """Return this source for a job that uses event time; may be called several times.

        A source that has the event timestamps of its records then yields :class:`TimestampedChunk`,
        and so does one whose `read_batches` mixes the records of several splits.
        """
        return self

    def read_lists(self, split_range: SplitRange) -> Iterator[RecordList]:
        """Yield the same records as :meth:`read`, as Python lists."""
        for chunk in self.read(split_range):
            yield chunk if isinstance(chunk, list | TimestampedChunk) else chunk.to_pylist()


@dataclass(frozen=True, slots=True)
class SparkRead:
    """What one of Spark's batch readers reads: its ``options``, and which ``columns``.

    It is read as one partition, in the order in which the reader returns its rows.
    """

    options: Mapping[str, str] = field(repr=False)
    """May contain passwords."""
    columns: tuple[str, ...]


class SparkSource(Source):
    """A source whose ranges are read by one of Spark's own readers.

    On the driver, each subtask's ranges become a :class:`SparkRead`; in the task, its rows arrive
    as Arrow record batches. :meth:`Source.read` must return the same records without Spark.
    """

    @abstractmethod
    def spark_format(self) -> str:
        """Return the name of the reader, as `spark.read.format` takes it."""

    @abstractmethod
    def spark_read(self, ranges: Sequence[SplitRange]) -> SparkRead:
        """Describe the read of one subtask's ranges; called for each try of a micro-batch."""

    @abstractmethod
    def read_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[RecordList]:
        """Turn what Spark read into records, in a task."""

    @abstractmethod
    def missing_reader(self) -> str:
        """Return one sentence that says what to do if Spark lacks the reader."""
