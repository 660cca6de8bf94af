"""The LMDB environments of this process, each opened at most once."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmdb

MAP_SIZE = 64 << 30

_LOCK_FILE = "lock.mdb"
_LOCK_BYTES = 8192
_STATE = b"state"
_META = b"meta"


@dataclass(slots=True)
class _Opened:
    env: Any
    users: int


_opened: dict[Path, _Opened] = {}
_lock = threading.Lock()


def _forget_in_child() -> None:
    # A forked worker must neither use nor close its parent's environments.
    global _lock
    _lock = threading.Lock()
    _opened.clear()


os.register_at_fork(after_in_child=_forget_in_child)


class LmdbEnv:
    """A counted reference to this process's environment at a path.

    Nothing is flushed: the files are a cache, the page cache survives a killed process, and after
    a reboot they are not used. The map is not writable because running out of shared memory would
    then kill the process instead of raising an error.
    """

    __slots__ = ("_path", "env", "meta_db", "state_db")

    def __init__(self, path: Path, map_size: int = MAP_SIZE) -> None:
        self._path = path
        with _lock:
            opened = _opened.get(path)
            if opened is None:
                opened = _opened[path] = _Opened(_open(path, map_size), 0)
            opened.users += 1
        self.env = opened.env
        try:
            self.state_db = self.env.open_db(_STATE)
            self.meta_db = self.env.open_db(_META)
        except BaseException:
            self.close()
            raise

    def begin(self, *, write: bool = False) -> Any:
        """Begin a transaction on the state; a map that another process has grown is adopted."""
        try:
            return self.env.begin(write=write, db=self.state_db)
        except lmdb.MapResizedError:
            self.env.set_mapsize(0)
            return self.env.begin(write=write, db=self.state_db)

    def grow(self) -> None:
        """Double the map; no transaction may be open."""
        self.env.set_mapsize(2 * self.env.info()["map_size"])

    def close(self) -> None:
        """Release the reference; the last one closes the environment."""
        with _lock:
            opened = _opened.get(self._path)
            if opened is None or opened.env is not self.env:
                return
            opened.users -= 1
            if not opened.users:
                del _opened[self._path]
                opened.env.close()


def _open(path: Path, map_size: int) -> Any:
    path.mkdir(parents=True, exist_ok=True)
    _reserve_lock_file(path)
    env = lmdb.open(
        str(path),
        map_size=map_size,
        max_dbs=2,
        sync=False,
        metasync=False,
        meminit=False,
        lib_version=0,
    )
    # Readers that were killed would keep every page they saw from being reused.
    env.reader_check()
    return env


def _reserve_lock_file(path: Path) -> None:
    """Allocate LMDB's lock file, in the size that it has by default.

    LMDB maps it into memory: without space, writing to it would kill the process.
    """
    lock = os.open(path / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(lock, 0, _LOCK_BYTES)
    finally:
        os.close(lock)
