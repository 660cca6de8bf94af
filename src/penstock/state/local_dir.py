"""The directories of local state stores on a host.

The driver names a directory, and each process determines its path on the host it runs on. The files
there may vanish at any time: they are a cache. They hold pickled values, so a directory is used
only if no other user can have written into it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TypeVar

from penstock.errors import LocalStateDirFullError, UnsafeLocalStateDirError
from penstock.ids import AttemptId, is_no_later

logger = logging.getLogger("penstock.state")

T = TypeVar("T")

LOCAL_DIR_VARIABLE = "PENSTOCK_STATE_LOCAL_DIR"
"""Environment variable with the directory of a host; it overrides the job's configuration."""

SHARED_MEMORY = Path("/dev/shm")
ENOUGH = 2 << 30
TOKEN_BYTES = 16

_OF_A_DRIVER = rf"(-[0-9a-f]{{{2 * TOKEN_BYTES}}})?(\.gone-[0-9]+-[0-9]+)?"
_SPARK_DIRS = ("CONTAINER_ID", "LOCAL_DIRS", "SPARK_EXECUTOR_DIRS", "SPARK_LOCAL_DIRS")
_MOUNTS = Path("/proc/self/mountinfo")
_FULL = (errno.ENOSPC, errno.EDQUOT)
# LMDB reports a write that had space for its beginning only as an input/output error.
_FULL_TEXTS = tuple(os.strerror(number) for number in (*_FULL, errno.EIO))
_numbers = count()


@dataclass(frozen=True, slots=True)
class HostDir:
    """A directory that exists on each host, under a path that the host determines.

    A host has several locations for it, the best first. The directory is in the first one; if that
    is full, it is created in the next. The last location that has it counts, so all processes of a
    host change over together, without writing anything to a full disk.
    """

    configured: Path | None
    """The configured location, for hosts without the environment variable."""
    name: str
    """Relative path; its first part is unique to the job."""
    token: str = ""
    """Random, new for each driver: another user cannot create the directory before this one."""
    in_memory: bool = True
    """Whether shared memory may be used."""

    def __truediv__(self, name: str) -> HostDir:
        return replace(self, name=f"{self.name}/{name}")

    def resolve(self) -> Path:
        """Return the path on the host of the calling process, whether it exists or not."""
        roots = self._roots()
        return roots[self._choose(roots)] / self._relative

    def create(self) -> Path:
        """Return the path, after making sure that it is this user's and nobody else's.

        Raises:
            UnsafeLocalStateDirError: every location has something of that name that is not.
        """
        roots, job = self._roots(), self._job
        first = self._choose(roots)
        if first == 0 and _is_private(f"{roots[0]}/{job}"):
            return roots[0] / self._relative  # almost always, and before each micro-batch
        for number, root in enumerate(roots[first:], first):
            path = root / self._relative
            try:
                with writing_to(path):
                    make_private(root / job)
            except UnsafeLocalStateDirError as error:
                logger.warning("%s", error)
                unsafe = error
            else:
                for full in (earlier / self._relative for earlier in roots[:number]):
                    shutil.rmtree(full, ignore_errors=True)
                return path
        raise unsafe

    def use(self, function: Callable[[Path], T]) -> T:
        """Call a function with the path on this host; if its location is full, with the next one.

        Raises:
            LocalStateDirFullError: all locations are full.
            UnsafeLocalStateDirError: as `create`.
        """
        while True:
            try:
                return function(self.create())
            except LocalStateDirFullError as full:
                self._fall_back(full)

    def _fall_back(self, full: LocalStateDirFullError) -> None:
        path, roots = Path(full.path), self._roots()
        found = (i for i, root in enumerate(roots) if path.is_relative_to(root / self._job))
        for root in roots[next(found, len(roots)) + 1 :]:
            try:
                make_private(root / self._job)
            except (UnsafeLocalStateDirError, OSError) as error:
                logger.warning("Local state cannot be kept in %s: %s", root, error)
            else:
                logger.error("%s; the state is rebuilt in %s", full, root / self._relative)
                return
        raise full

    def of_all_drivers(self) -> list[Path]:
        """Return the job's directories on this host, those of earlier drivers too."""
        found = []
        for root in self._roots():
            with contextlib.suppress(OSError):
                found += [Path(e.path) for e in os.scandir(root) if self.is_of_job(Path(e.path))]
        return found

    def is_of_job(self, path: Path) -> bool:
        """Whether a directory is one of the job's, of any driver, and belongs to this user."""
        names = re.escape(self.name.partition("/")[0]) + _OF_A_DRIVER
        return re.fullmatch(names, path.name) is not None and _is_own(path)

    def remove_if_empty(self) -> None:
        """Remove the job's directory from all locations of this host where it is empty."""
        for root in self._roots():
            with contextlib.suppress(OSError):
                (root / self._job).rmdir()

    @property
    def _job(self) -> str:
        return self._relative.partition("/")[0]

    @property
    def _relative(self) -> str:
        job, slash, rest = self.name.partition("/")
        return f"{job}-{self.token}{slash}{rest}" if self.token else self.name

    def _choose(self, roots: tuple[Path, ...]) -> int:
        """Return which location has the directory, or should get it."""
        job = self._job
        for number in reversed(range(len(roots))):
            if _is_private(f"{roots[number]}/{job}"):
                return number
        is_default = self.configured is None and not os.environ.get(LOCAL_DIR_VARIABLE)
        return int(is_default and self.in_memory and not _has_space(SHARED_MEMORY))

    def _roots(self) -> tuple[Path, ...]:
        """Return the locations of this host, the best first."""
        own = os.environ.get(LOCAL_DIR_VARIABLE)
        memory = SHARED_MEMORY if self.in_memory else None
        first = Path(own).absolute() if own else self.configured or memory
        spark = tuple(os.environ.get(variable, "") for variable in _SPARK_DIRS)
        return _locations(first, spark, tempfile.gettempdir(), self.in_memory)


_cleaned_up: set[tuple[HostDir, AttemptId]] = set()


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
        if (self.job, self.attempt) not in _cleaned_up:
            for directory in self.job.of_all_drivers():
                remove_attempts(directory, self.attempt, spared=self.attempt)
                # Not this attempt's own: another process may be about to use it.
                if directory != self.job.resolve():
                    _remove_if_empty(directory)
            _cleaned_up.add((self.job, self.attempt))

    def leave(self) -> None:
        """Remove this and all older attempts' directories from this host; may be repeated."""
        for directory in self.job.of_all_drivers():
            remove_attempts(directory, self.attempt)
            # A later attempt may have started already: the directory is not empty then.
            _remove_if_empty(directory)


def remove_older_attempts(directories: Iterable[AttemptDir]) -> None:
    """Call `AttemptDir.remove_older_attempts` of several directories."""
    for directory in directories:
        directory.remove_older_attempts()


def make_private(path: Path) -> None:
    """Create a directory that only this user can read and write, or verify that it is one.

    Raises:
        UnsafeLocalStateDirError: there is something else, or somebody else's.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(2):
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700)
        if _is_private(path):
            return
        if not _is_own(path):
            raise UnsafeLocalStateDirError(str(path), _describe(path))
        # Others could have written there; it is only a copy.
        away = path.with_name(f"{path.name}.gone-{os.getpid()}-{next(_numbers)}")
        path.rename(away)
        shutil.rmtree(away, ignore_errors=True)
    raise UnsafeLocalStateDirError(str(path), _describe(path))


@contextlib.contextmanager
def writing_to(local_dir: Path) -> Iterator[None]:
    """Raise `LocalStateDirFullError` if a location has no space for what happens here."""
    try:
        yield
    except Exception as error:
        if not is_full(error):
            raise
        raise LocalStateDirFullError(str(local_dir), str(error)) from error


def is_full(error: BaseException) -> bool:
    """Whether an error of Python, LMDB or RocksDB says that a file system or quota is full."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _FULL
    return any(text in str(error) for text in _FULL_TEXTS)


def choose_local_dir() -> Path:
    """Return the location that the hashmap backend uses on this host by default."""
    return HostDir(None, "penstock").resolve().parent


def remove_attempts(directory: Path, last: str, *, spared: str = "") -> None:
    """Remove the directories of attempts up to ``last`` of a job on this host.

    May be called by several processes at once, and while a zombie of such an attempt still writes
    there. Later attempts are left alone.
    """
    for place in directory.glob("*"):
        if place.name != spared and is_no_later(place.name, last):
            shutil.rmtree(place, ignore_errors=True)


def _remove_if_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()


def _is_own(path: Path | str, forbidden: int = 0) -> bool:
    """Whether there is a directory, not a link, that belongs to this user."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return is_own and not found.st_mode & forbidden


def _is_private(path: Path | str) -> bool:
    return _is_own(path, forbidden=0o077)


def _describe(path: Path) -> str:
    try:
        found = path.lstat()
    except OSError as error:
        return error.strerror or str(error)
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    if found.st_uid != os.geteuid():
        return f"it belongs to user {found.st_uid}, not to {os.geteuid()}"
    return f"other users have access to it (mode {stat.S_IMODE(found.st_mode):04o})"


def _has_space(path: Path) -> bool:
    # Containers often have 64 MB of shared memory.
    return os.access(path, os.W_OK) and shutil.disk_usage(path).free >= ENOUGH


@lru_cache(maxsize=8)
def _locations(
    first: Path | None, spark: tuple[str, ...], temporary: str, in_memory: bool
) -> tuple[Path, ...]:
    """Return the locations of this host: the ``first``, then directories for temporary files.

    ``spark`` are the values of `_SPARK_DIRS`. A cluster manager removes an application's
    directories when it has ended. Unless it may be ``in_memory``, state is kept in a file system in
    memory only as a last resort.
    """
    container, yarn, executor, local = spark
    names = [
        *(yarn.split(",") if container else ()),  # YARN's, for a container
        *executor.split(os.pathsep),
        *local.split(","),  # of a task: those of spark.local.dir
        temporary,
        "/var/tmp",
    ]
    found = [Path(name).absolute() for name in names if name and os.access(name, os.W_OK)]
    if not in_memory:
        found.sort(key=_is_in_memory)
    return tuple(dict.fromkeys((*([first] if first else []), *(found or [Path(temporary)]))))


def _is_in_memory(path: Path) -> bool:
    """Whether a directory is in a file system without a disk."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in _MOUNTS.read_text().splitlines():
            mount, _, kind = line.partition(" - ")
            if mount.split()[2] == wanted:
                return kind.split()[0] in {"tmpfs", "ramfs"}
    return False
