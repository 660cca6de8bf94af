"""The contract of sources: plan ranges on the driver, read them in tasks.

A source has two halves. Its *enumerator* lives on the driver and cuts the input into
explicit ranges, one plan per micro-batch. Its :meth:`Source.read` runs in the tasks and
turns one range into records. Nothing else passes between the halves, so a range must say
everything: whoever reads it, wherever and however often, gets the same records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock.connectors.kept_files import KeptFiles

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.common.typeinfo import TypeInformation

__all__ = [
    "CHUNK_RECORDS",
    "Boundedness",
    "Chunk",
    "EnumeratorContext",
    "Listed",
    "Plan",
    "Source",
    "SourceEnumerator",
    "SparkRead",
    "SparkSource",
    "SplitRange",
    "TimedChunk",
]

CHUNK_RECORDS = 65_536
"""How many records a chunk given out by :meth:`Source.read` holds at most."""


@dataclass(frozen=True, slots=True)
class TimedChunk:
    """Records of one split with the event times that the source knows of them."""

    split: str
    records: list[Any]
    times: list[int]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.records)

    def __getitem__(self, index: int) -> Any:
        return self.records[index]


Chunk: TypeAlias = "list[Any] | pa.Array | TimedChunk"
"""Some records in order; an Arrow array where the source can give one."""

Listed: TypeAlias = "list[Any] | TimedChunk"
"""The same as Python objects."""


class Boundedness(Enum):
    """Whether a source comes to an end by itself."""

    BOUNDED = "BOUNDED"
    CONTINUOUS_UNBOUNDED = "CONTINUOUS_UNBOUNDED"


class SplitRange(msgspec.Struct, frozen=True):
    """A piece of one split, to be read by one subtask in one micro-batch.

    ``split`` is the split's stable id: a file's path, a log's directory, ``"0"``. ``start``
    is inclusive and ``end`` exclusive, in the source's own unit (rows or bytes).
    """

    split: str
    start: int
    end: int


Plan: TypeAlias = list[list[SplitRange]]
"""What the subtasks read in one micro-batch, a list for each of them in order."""


@dataclass(frozen=True, slots=True)
class EnumeratorContext:
    """What an enumerator may know of the job it plans for.

    ``work_dir`` is a durable directory of this source alone, named after its uid: the same
    one after a restart, not necessarily there yet. ``clock`` tells the time in seconds.
    ``wake`` tells the loop that a plan would now give something; it may be called from any
    thread, and too often does no harm. ``attempt`` never comes back in the life of ``job``;
    `penstock.ids.attempt_number` tells which of two is later. ``checkpointed`` is False in a job
    without any checkpoints. ``life`` is the same in all attempts that go on with what one before
    them began, and another in every job that begins anew, under whatever name.
    """

    parallelism: int
    work_dir: Path
    clock: Callable[[], float]
    wake: Callable[[], None]
    job: str = ""
    attempt: str = ""
    checkpointed: bool = True
    life: str = ""


class SourceEnumerator(ABC):
    """Decides on the driver what each micro-batch reads.

    There is one enumerator per source and attempt of the job. All calls come from one
    thread, :meth:`start` first and :meth:`close` last; threads of the enumerator's own talk
    to it at their own risk and to the loop through ``wake``.

    Positions are the whole memory of a source: they go into checkpoints, and an enumerator
    started with them goes on exactly there. After a crash of the driver everything planned
    behind the last checkpoint is planned again, perhaps cut differently, and must give the
    same records in the same order within each split.
    """

    def recall(self, memory: bytes) -> None:  # noqa: B027
        """Take back what :meth:`memory` gave at the cut that is restored; before :meth:`start`.

        Not called if that was nothing.
        """

    def recall_files(self, directory: Path) -> None:  # noqa: B027
        """Learn where the files lie that :meth:`kept_files` named at the cut that is restored.

        Called before :meth:`start` if there were any. All of them are there and were proven. They
        belong to the snapshot, and stay as they are.
        """

    @abstractmethod
    def start(self, positions: Mapping[str, int]) -> None:
        """Begin at these positions, or at the beginning if there are none.

        Called once, before anything else. May start threads and open connections; what
        makes the source unusable is raised here or already by :meth:`Source.enumerator`.
        """

    @abstractmethod
    def plan(self, max_records: int) -> Plan:
        """Cut off the ranges of the next micro-batch and step behind them.

        Gives one list per subtask, some of which may be empty, or ``[]`` if there is nothing
        to read now. ``max_records`` is for all subtasks together, and only aimed at by a
        source that cannot count before reading. Ranges of one split ascend with the subtask
        index, so that subtasks read one after the other would keep its order.

        Errors met in the meantime (a lost connection) are raised from here.
        """

    @abstractmethod
    def positions(self) -> dict[str, int]:
        """Tell per split where the next plan goes on: behind the last planned range."""

    def memory(self) -> bytes:
        """Tell what else a restored enumerator must know, at most a few MiB.

        Called at a cut, together with :meth:`positions`.
        """
        return b""

    def kept_files(self) -> KeptFiles | None:
        """Name the files of its own that belong to what :meth:`memory` has just told.

        They stay as they are until :meth:`release` allows otherwise. A checkpoint names them and
        is completed when they read back as described; a savepoint gets copies.
        """
        return None

    @abstractmethod
    def finished(self) -> bool:
        """Tell whether everything there will ever be is planned; once true, always true."""

    def parallel_splits(self) -> Collection[str]:
        """Name the splits that are read side by side, so that event time waits for each of them.

        Where splits are read one after the other, as files are, it only waits for those that were
        begun, which need not be named.
        """
        return ()

    def is_finished(self, split: str) -> bool:
        """Tell whether a split is planned to its end, so that no event time waits for it."""
        return False

    def observe(self, records: int, ranges: Sequence[SplitRange]) -> None:  # noqa: B027
        """Learn how many records the ranges of a published micro-batch held.

        Called after publication, not for every plan and not after a restore: good for
        estimates only.
        """

    def next_poll(self) -> float | None:
        """Tell in how many seconds a plan could give something new without a wake.

        0 means at once, None that only ``wake`` announces news.
        """
        return None if self.finished() else 0.0

    def completed(self, positions: Mapping[str, int]) -> None:  # noqa: B027
        """Learn that a checkpoint with these positions of this source is completed.

        What lies before them counts for good, whatever crashes: the place to tell an outside
        system so. Called between two micro-batches, and once more before :meth:`close` if one was
        completed since. May be left out (a crash, or a newer one came at once) and is not called
        for savepoints, but for the one a job stops with. What is raised fails the job.
        """

    def release(self, positions: Mapping[str, int]) -> None:  # noqa: B027
        """Learn that nothing below these positions will ever be asked for again.

        Called with the lowest positions of all retained checkpoints and savepoints; a source
        that keeps copies of its input may delete what lies below.
        """

    def close(self) -> None:  # noqa: B027
        """Stop threads and give back resources; called once, also after an error."""


class Source(ABC):
    """Where the records of a stream come from.

    The user builds it, the driver asks it for an enumerator, and every task gets its own
    copy by cloudpickle: it is a description and holds no connection, file or thread.
    """

    @abstractmethod
    def boundedness(self) -> Boundedness:
        """Tell whether this source ends by itself."""

    def type_info(self) -> TypeInformation | None:
        """Tell the type of the records; None if the source does not know it."""
        return None

    def default_parallelism(self) -> int | None:
        """Tell how many subtasks read this source unless the user says so; None as the job."""
        return None

    @abstractmethod
    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        """Make the driver's half; called once per attempt of the job."""

    @abstractmethod
    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        """Give the records of a range, in order, in chunks of at most ``CHUNK_RECORDS``.

        Called in a task, for each range of its plan. A retried task, a repeated micro-batch
        or a restored job reads a range again and must get the same records.
        """

    def with_time(self) -> Source:
        """Return this source as it is read where event time counts.

        A source that knows the event times of its records gives them then, in chunks that are
        :class:`TimedChunk`.
        """
        return self

    def read_lists(self, split_range: SplitRange) -> Iterator[Listed]:
        """Give the same records as :meth:`read` as Python lists, for operators in Python."""
        for chunk in self.read(split_range):
            yield chunk if isinstance(chunk, list | TimedChunk) else chunk.to_pylist()


@dataclass(frozen=True, slots=True)
class SparkRead:
    """What a batch reader of Spark's own shall read: its ``options``, and which ``columns``.

    Read as one partition, in the order in which the reader gives its rows.
    """

    options: Mapping[str, str]
    columns: tuple[str, ...]


class SparkSource(Source):
    """A source whose ranges are read by one of Spark's own readers.

    On the driver each subtask's ranges become a :class:`SparkRead`; in the task its rows come
    as Arrow record batches. :meth:`Source.read` must give the same records without Spark.
    """

    @abstractmethod
    def spark_format(self) -> str:
        """Name the reader, as `spark.read.format` takes it."""

    @abstractmethod
    def spark_read(self, ranges: Sequence[SplitRange]) -> SparkRead:
        """Say how Spark reads the ranges of one subtask; called for each try of a micro-batch."""

    @abstractmethod
    def read_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Listed]:
        """Turn what Spark read, inside a task, into records."""

    @abstractmethod
    def missing_reader(self) -> str:
        """Say what to do if Spark does not have the reader, in one sentence."""
