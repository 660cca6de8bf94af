"""One version of the state, in a RocksDB of this host."""

# ruff: noqa: D102  the contract documents these methods

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from penstock.state.backends.local_stores import snapshot_path
from penstock.state.backends.refs import LocalSnapshot, StagedName
from penstock.state.backends.rocksdb.database import RocksDbDatabase
from penstock.state.backends.store import StateStore
from penstock.state.local_dir import is_full

logger = logging.getLogger("penstock.state")


class RocksDbStore(StateStore):
    """A database that no other process has open, and so none can change.

    ``release`` is called once when it is closed, with whether the database is intact.
    """

    __slots__ = (
        "_database",
        "_families",
        "_is_intact",
        "_local_dir",
        "_release",
        "version",
        "was_rebuilt",
    )

    def __init__(
        self,
        database: RocksDbDatabase,
        version: int,
        local_dir: Path,
        release: Callable[[bool], None],
        *,
        was_rebuilt: bool,
    ) -> None:
        self.version = version
        self.was_rebuilt = was_rebuilt
        self._database: RocksDbDatabase | None = database
        self._families: Any = database.families
        self._local_dir = local_dir
        self._release = release
        self._is_intact = True

    def get(self, key: bytes) -> bytes | None:
        family = self._families.get(key[:2])
        if family is None:
            return None
        try:
            found: bytes | None = family.get(key[2:])
        except Exception as error:
            self._discard_after(error)
        return found

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        prefixes = {key[:2] for key in keys}
        if len(prefixes) != 1:
            return list(map(self.get, keys))
        family = self._families.get(prefixes.pop())
        if family is None:
            return [None] * len(keys)
        try:
            found: list[bytes | None] = family.get([key[2:] for key in keys])
        except Exception as error:
            self._discard_after(error)
        return found

    def scan_between(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        entries = self._opened().scan(start, stop)
        try:
            yield from entries
        except Exception as error:
            self._discard_after(error)

    def snapshot(self, name: StagedName) -> LocalSnapshot | None:
        path = snapshot_path(self._local_dir, self.version, name)
        try:
            self._opened().snapshot(path)
        except Exception as error:
            if not is_full(error):
                raise
            # The checkpoint is made from the shared files instead; the next task that opens the
            # state moves it to another location.
            logger.warning("Local snapshot %s cannot be taken: %s", path, error)
            return None
        return LocalSnapshot(str(path), self.version)

    def properties(self, names: Sequence[str]) -> dict[bytes, dict[str, int]]:
        return self._opened().properties(names)

    def close(self) -> None:
        if self._database is None:
            return
        database, self._database, self._families = self._database, None, _Closed()
        try:
            database.close()
        finally:
            self._release(self._is_intact)

    def _opened(self) -> RocksDbDatabase:
        if self._database is None:
            _raise_closed()
        return self._database

    def _discard_after(self, error: Exception) -> NoReturn:
        # The database is only a copy: it is discarded when it is closed, and the next try rebuilds
        # it. So the state itself is not corrupt, and the task may be retried.
        self._is_intact = False
        message = f"the local copy of the state cannot be read: {error}"
        raise OSError(message) from error


class _Closed:
    def get(self, _: bytes) -> NoReturn:
        _raise_closed()


def _raise_closed() -> NoReturn:
    message = "the store is closed"
    raise ValueError(message)
