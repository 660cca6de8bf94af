"""Marks the working directories of attempts, and removes those of dead attempts."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from penstock.checkpoint.storage.job_dir import resolved
from penstock.common.new_files import naming
from penstock.common.storage_url import Location
from penstock.state.local_dir import remove_attempts
from penstock.task.layout import AttemptLayout

_PREFIX = "penstock-"
_OWNER = "owner"


def own_work_dir(directory: Path, job_dir: Location) -> None:
    """Mark a work directory as belonging to a job, before the journal names the directory.

    The journal in a copied job directory names the work directory of the original job: without the
    mark the copy would delete it.
    """
    owner = directory / _OWNER
    with naming(owner):
        owner.write_text(_owner_text(job_dir))


def remove_dead_work_dirs(known: Iterable[Path], mine: AttemptLayout) -> None:
    """Remove the directories of dead attempts; `known` are those that the journal names.

    A shared directory belongs to one process and is never used again. A local directory belongs to
    all attempts of a driver, and a newer attempt may be using it: there only the subdirectories of
    older attempts are removed.
    """
    for directory in {*mine.local.of_all_drivers(), *known}:
        if mine.local.is_of_job(directory):
            _remove_attempts_before(directory, mine)
        elif directory != mine.shared and _is_of(directory, mine.durable):
            _remove(directory)


def _remove_attempts_before(local: Path, mine: AttemptLayout) -> None:
    is_mine = local == mine.local.resolve()
    remove_attempts(local, mine.attempt, spared=mine.attempt if is_mine else "")
    if not is_mine:
        with contextlib.suppress(OSError):
            local.rmdir()


def _remove(directory: Path) -> None:
    for path in directory.glob("*"):
        if path.name != _OWNER:
            shutil.rmtree(path, ignore_errors=True)
    # The owner file goes last: after a crash the next attempt can still tell whose the rest is.
    shutil.rmtree(directory, ignore_errors=True)


def _is_of(directory: Path, job_dir: Location) -> bool:
    try:
        owner = (directory / _OWNER).read_text()
    except OSError:
        return False
    return directory.name.startswith(_PREFIX) and owner == _owner_text(job_dir)


def _owner_text(job_dir: Location) -> str:
    return str(resolved(job_dir))
