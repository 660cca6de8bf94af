"""Where on a host the local stores go.

Every host decides for itself: the driver names the directory, each process finds it on the host
it runs on. What lies there may vanish at any time: it is a cache.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from penstock.ids import AttemptId, is_no_later

__all__ = [
    "LOCAL_DIR_VARIABLE",
    "AttemptDir",
    "HostDir",
    "choose_local_dir",
    "remove_attempts",
]

LOCAL_DIR_VARIABLE = "PENSTOCK_STATE_LOCAL_DIR"
"""In the environment of a host's processes: the directory of that host, whatever the job says."""

SHARED_MEMORY = Path("/dev/shm")
ENOUGH = 2 << 30


@dataclass(frozen=True, slots=True)
class HostDir:
    """A directory that each host has one of, known to all by its name."""

    configured: Path | None
    """What the job's configuration says, for hosts that say nothing themselves."""
    name: str
    """Relative; its first part is the job's alone."""

    def __truediv__(self, name: str) -> HostDir:
        return HostDir(self.configured, f"{self.name}/{name}")

    def here(self) -> Path:
        """Return the path on the host of the calling process.

        The host's own word counts most, then the job's. Without either, one process chooses by
        free space, and the others follow it as soon as the directory is there.
        """
        own = os.environ.get(LOCAL_DIR_VARIABLE)
        if own:
            return Path(own).absolute() / self.name
        if self.configured is not None:
            return self.configured / self.name
        job, fallback = self.name.partition("/")[0], _scratch()
        for root in (SHARED_MEMORY, fallback):
            if (root / job).is_dir():
                return root / self.name
        return choose_local_dir(ENOUGH, SHARED_MEMORY, fallback) / self.name


_ways_made: set[tuple[Path, AttemptId]] = set()


@dataclass(frozen=True, slots=True)
class AttemptDir:
    """What one attempt of a job has on each host."""

    job: HostDir
    attempt: AttemptId

    @property
    def everywhere(self) -> HostDir:
        """The directory, as all hosts have it."""
        return self.job / self.attempt

    def make_way(self) -> None:
        """Remove what dead attempts left on this host; called by tasks before they open state.

        The attempt has won the journal, so every older one is dead or does not know it yet. Does
        something once in the life of a process.
        """
        here = self.job.here()
        if (here, self.attempt) not in _ways_made:
            remove_attempts(here, self.attempt, spared=self.attempt)
            _ways_made.add((here, self.attempt))

    def leave(self) -> None:
        """Remove it from this host, with all that older attempts left; may be called again."""
        here = self.job.here()
        remove_attempts(here, self.attempt)
        # Later attempts may be there already: what is in it then is theirs.
        with contextlib.suppress(OSError):
            here.rmdir()


def choose_local_dir(
    enough: int = ENOUGH, shared_memory: Path = SHARED_MEMORY, fallback: Path | None = None
) -> Path:
    """Return the fastest directory of this host that has ``enough`` bytes free.

    That is shared memory where there is room (containers often leave 64 MB), else a directory
    for what is temporary.
    """
    if os.access(shared_memory, os.W_OK) and shutil.disk_usage(shared_memory).free >= enough:
        return shared_memory
    return _scratch() if fallback is None else fallback


def remove_attempts(directory: Path, last: str, *, spared: str = "") -> None:
    """Remove what attempts up to ``last`` left in a job's directory of this host.

    May be called by several processes at once, and while a zombie of such an attempt still
    writes there: nothing of it counts, so it may fail. Later attempts are left alone.
    """
    for place in directory.glob("*"):
        if place.name != spared and is_no_later(place.name, last):
            shutil.rmtree(place, ignore_errors=True)


def _scratch() -> Path:
    """Return a disk for temporary files: the one that Spark was given, if it says so.

    A cluster manager removes what it gave to an application when that has ended.
    """
    environment = os.environ
    for variable, separator in (
        ("LOCAL_DIRS" if "CONTAINER_ID" in environment else "", ","),  # YARN's, for a container
        ("SPARK_EXECUTOR_DIRS", os.pathsep),
        ("SPARK_LOCAL_DIRS", ","),
    ):
        for given in environment.get(variable, "").split(separator):
            if given and os.access(given, os.W_OK):
                return Path(given).absolute()
    return Path(tempfile.gettempdir())
