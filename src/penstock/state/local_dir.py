"""The directories of local state stores on a host.

The driver names a directory, and each process determines its path on the host it runs on. The files
there may vanish at any time: they are a cache.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from penstock.ids import AttemptId, is_no_later

LOCAL_DIR_VARIABLE = "PENSTOCK_STATE_LOCAL_DIR"
"""Environment variable with the directory of a host; it overrides the job's configuration."""

SHARED_MEMORY = Path("/dev/shm")
ENOUGH = 2 << 30


@dataclass(frozen=True, slots=True)
class HostDir:
    """A directory that exists on each host, under a path that the host determines."""

    configured: Path | None
    """The configured directory, for hosts without the environment variable."""
    name: str
    """Relative path; its first part is unique to the job."""

    def __truediv__(self, name: str) -> HostDir:
        return HostDir(self.configured, f"{self.name}/{name}")

    def resolve(self) -> Path:
        """Return the path on the host of the calling process.

        The host's environment variable has priority over the job's configuration. Without either,
        one process chooses by free space, and the others follow as soon as the directory exists.
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


_cleaned_up: set[tuple[Path, AttemptId]] = set()


@dataclass(frozen=True, slots=True)
class AttemptDir:
    """The local directory of one attempt of a job, on each host."""

    job: HostDir
    attempt: AttemptId

    @property
    def host_dir(self) -> HostDir:
        """The directory, before it is resolved on a host."""
        return self.job / self.attempt

    def remove_older_attempts(self) -> None:
        """Remove the directories of older attempts on this host; called before state is opened.

        The attempt is in the journal, so every older one is fenced off, even if its processes still
        run. Does its work once per process.
        """
        here = self.job.resolve()
        if (here, self.attempt) not in _cleaned_up:
            remove_attempts(here, self.attempt, spared=self.attempt)
            _cleaned_up.add((here, self.attempt))

    def leave(self) -> None:
        """Remove this and all older attempts' directories from this host; may be repeated."""
        here = self.job.resolve()
        remove_attempts(here, self.attempt)
        # A later attempt may have started already: the directory is not empty then.
        with contextlib.suppress(OSError):
            here.rmdir()


def choose_local_dir(
    enough: int = ENOUGH, shared_memory: Path = SHARED_MEMORY, fallback: Path | None = None
) -> Path:
    """Return the fastest directory of this host with ``enough`` free bytes.

    That is shared memory if it is large enough (containers often have 64 MB), else a directory for
    temporary files.
    """
    if os.access(shared_memory, os.W_OK) and shutil.disk_usage(shared_memory).free >= enough:
        return shared_memory
    return _scratch() if fallback is None else fallback


def remove_attempts(directory: Path, last: str, *, spared: str = "") -> None:
    """Remove the directories of attempts up to ``last`` of a job on this host.

    May be called by several processes at once, and while a zombie of such an attempt still writes
    there. Later attempts are left alone.
    """
    for place in directory.glob("*"):
        if place.name != spared and is_no_later(place.name, last):
            shutil.rmtree(place, ignore_errors=True)


def _scratch() -> Path:
    """Return a directory for temporary files: Spark's, if the environment names one.

    A cluster manager removes an application's directories when it has ended.
    """
    environment = os.environ
    for variable, separator in (
        ("LOCAL_DIRS" if "CONTAINER_ID" in environment else "", ","),  # YARN's, for a container
        ("SPARK_EXECUTOR_DIRS", os.pathsep),
        ("SPARK_LOCAL_DIRS", ","),
    ):
        for path in environment.get(variable, "").split(separator):
            if path and os.access(path, os.W_OK):
                return Path(path).absolute()
    return Path(tempfile.gettempdir())
