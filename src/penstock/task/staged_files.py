"""Removes what tasks staged for nothing: of a failed task attempt, or of a lost try."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.graph.plan import Stage
from penstock.state.files import DELTA
from penstock.task.layout import AttemptLayout


def remove_staged(layout: AttemptLayout, stage: Stage, subtasks: Iterable[int], name: str) -> None:
    """Remove segments, deltas and staged values by the name of their task attempt.

    ``name`` is a pattern for several task attempts. Best effort: a task that still runs may write
    more, which is removed at the end of the attempt, and so is what a store has. Sinks remove what
    they staged elsewhere. If hosts share no directory, it removes what is on this host.
    """
    for path in _staged(layout, stage, subtasks, name):
        with contextlib.suppress(OSError):
            path.unlink()


def files_of(directory: Path, name: str) -> Iterator[Path]:
    """Yield what is below a directory under names that contain that of a task attempt.

    ``name`` may end with ``*``, as a pattern for several task attempts.
    """
    beginning = name.removesuffix("*")
    # Another task attempt's name may begin with the whole name of this one.
    more = "" if beginning != name else "(?![0-9])"
    wanted = re.compile(re.escape(beginning) + more)
    found = directory.rglob(f"*{beginning}*")
    return (path for path in found if wanted.search(path.name))


def _staged(
    layout: AttemptLayout, stage: Stage, subtasks: Iterable[int], name: str
) -> Iterator[Path]:
    for channel in stage.outputs:
        if isinstance(directory := layout.channel(channel.id), Path):
            yield from directory.glob(f"{name}.arrow")
    for directories in (layout.sink_dirs_of_task(node.uid) for node in stage.nodes):
        yield from directories.staging.glob(name)
        if layout.unshared is not None:
            yield from files_of(directories.work, name)
    for subtask in subtasks:
        yield from layout.place(stage.head.uid, subtask).shared_dir.glob(f"*-{name}{DELTA}")
