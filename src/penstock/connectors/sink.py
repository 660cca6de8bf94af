"""The contract of sinks: stage in tasks, publish on the driver.

Nothing a task does may be seen from outside, because the task may be repeated or its
micro-batch thrown away. So a *writer* in the task only stages, and tells in a few bytes what
it staged; the *publisher* on the driver makes it visible once the micro-batch counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation

__all__ = ["PublisherContext", "Sink", "SinkPublisher", "SinkWriter", "WriterContext"]


@dataclass(frozen=True, slots=True)
class WriterContext:
    """What a writer may know of the task it runs in.

    ``name`` is unique for each task attempt: whatever it stages under that name, no other
    attempt touches it. ``staging_dir`` is a directory of this step, under its own name, that
    driver and tasks share (not necessarily there yet); the engine empties it of micro-batches
    that are published or lost, so nothing in there outlives the publisher's call. ``type_info``
    is the declared type of the values, None if there is none.
    """

    subtask: int
    parallelism: int
    staging_dir: Path
    name: str
    type_info: TypeInformation | None = None


@dataclass(frozen=True, slots=True)
class PublisherContext:
    """What a publisher may know of the step it publishes for.

    ``name`` is the step's name. ``work_dir`` is a durable directory of this step, under
    the same name as the ``staging_dir`` of its writers; the same one after a restart, not
    necessarily there yet.
    """

    parallelism: int
    name: str
    work_dir: Path


class SinkWriter(ABC):
    """Takes the values of one subtask in one micro-batch, inside a task.

    Made anew for every task attempt; :meth:`write` for each value, then :meth:`stage` once,
    or :meth:`abort` after an error. An attempt may also vanish without either.
    """

    @abstractmethod
    def write(self, value: Any) -> None:
        """Take one value; it may be changed by others afterwards."""

    def write_many(self, values: Iterable[Any]) -> None:
        """Take several values in order."""
        write = self.write
        for value in values:
            write(value)

    @abstractmethod
    def stage(self) -> bytes:
        """Finish, and say what was staged, for the publisher alone to understand.

        The bytes travel in the task's acknowledgement: up to about 64 KiB may be the output
        itself, more goes into files that they name. ``b""`` stands for nothing.
        """

    def abort(self) -> None:  # noqa: B027
        """Throw away what was staged; best effort, since a killed task cannot do it."""


class SinkPublisher(ABC):
    """Makes staged output visible, on the driver.

    There is one publisher per sink and attempt of the job, called from one thread.
    """

    @abstractmethod
    def publish(self, staged: Sequence[bytes]) -> None:
        """Take what one micro-batch staged, one entry per subtask in order.

        Called in micro-batch order, once for each micro-batch of this attempt that counts,
        and only with what the winning task attempts staged. A restored job runs the
        micro-batches behind its checkpoint again: a sink that shows output here shows
        it again then.
        """

    def finish(self) -> None:  # noqa: B027
        """Come to the end of the input; called once, after the last :meth:`publish`."""

    def close(self) -> None:  # noqa: B027
        """Give back resources; called once, also after an error and without ``finish``."""


class Sink(ABC):
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
