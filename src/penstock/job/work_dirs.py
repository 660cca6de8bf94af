"""The directories that attempts of a job work in, outside of its own: whose, and how they go."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from penstock.state.local_dir import remove_attempts
from penstock.task.layout import Layout

__all__ = ["own_work_dir", "remove_dead_work_dirs"]

_PREFIX = "penstock-"
_OWNER = "owner"


def own_work_dir(directory: Path, job_dir: Path) -> None:
    """Write into the directory of this process whose it is; called before the journal names it.

    A copied job directory has the journal of its original, and would take
    what the original works in for its own.
    """
    (directory / _OWNER).write_text(_spelled(job_dir))


def remove_dead_work_dirs(known: Iterable[Path], mine: Layout) -> None:
    """Remove what dead attempts left; `known` are the directories that the journal names.

    A shared one is of one process, and never used again. A local one has the same name for all
    attempts of a job on a host: a successor may work there, so each attempt's part goes by name.
    """
    local = mine.local.here()
    for directory in {local, *known}:
        if directory.name == local.name:
            _remove_attempts_before(directory, mine)
        elif directory != mine.shared and _is_of(directory, mine.durable):
            _remove(directory)


def _remove_attempts_before(local: Path, mine: Layout) -> None:
    is_mine = local == mine.local.here()
    remove_attempts(local, mine.attempt, spared=mine.attempt if is_mine else "")
    if not is_mine:
        with contextlib.suppress(OSError):
            local.rmdir()


def _remove(directory: Path) -> None:
    for path in directory.glob("*"):
        if path.name != _OWNER:
            shutil.rmtree(path, ignore_errors=True)
    # Last: cut off before, the next attempt still knows whose the rest is.
    shutil.rmtree(directory, ignore_errors=True)


def _is_of(directory: Path, job_dir: Path) -> bool:
    try:
        owner = (directory / _OWNER).read_text()
    except OSError:
        return False
    return directory.name.startswith(_PREFIX) and owner == _spelled(job_dir)


def _spelled(job_dir: Path) -> str:
    return str(job_dir.resolve())
