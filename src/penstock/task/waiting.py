"""What waits for a subtask in its channels, for a step that reads it without running the chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.channel.columns import decoder_for
from penstock.channel.segment import read_slices
from penstock.task.keyed import Part
from penstock.task.messages import SubtaskWork
from penstock.task.subtask import StageTask, load_task

Whose = tuple[str, str, int]
"""Job, attempt and stage: tells a shipped stage from all others that a worker may see."""


def waiting_parts(task: StageTask, work: SubtaskWork) -> Iterator[Part]:
    """Yield the records of one subtask's micro-batch, channel by channel."""
    for channel in task.stage.inputs:
        decode = decoder_for(channel.record_type)
        for read in work.segments.get(channel.id, ()):
            path = task.layout.channel(channel.id) / read.name
            for part in read_slices(path, read.slices):
                yield Part(part, decode, channel.input)


class LoadedTasks:
    """The last stage that a worker has loaded, kept for its next micro-batch."""

    def __init__(self) -> None:
        self._last: tuple[Whose, StageTask] | None = None

    def __call__(self, whose: Whose, load: Callable[[], bytes]) -> StageTask:
        """Return a stage, loaded if it is not the one of before."""
        if self._last is None or self._last[0] != whose:
            self._last = whose, load_task(load())
        return self._last[1]
