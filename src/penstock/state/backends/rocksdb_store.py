"""One version of the state, in a RocksDB of this host."""

# ruff: noqa: D102  the contract says what these methods do

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from penstock.state.backends.local_stores import snapshot_path
from penstock.state.backends.refs import LocalSnapshot, StagedName
from penstock.state.backends.rocksdb_tree import RocksDbTree
from penstock.state.backends.store import StateStore

__all__ = ["RocksDbStore"]


class RocksDbStore(StateStore):
    """A database nobody else has open, and so nobody can change.

    ``release`` is called once when it is closed, with whether the database is still good.
    """

    __slots__ = (
        "_families",
        "_is_good",
        "_local_dir",
        "_release",
        "_tree",
        "version",
        "was_rebuilt",
    )

    def __init__(
        self,
        tree: RocksDbTree,
        version: int,
        local_dir: Path,
        release: Callable[[bool], None],
        *,
        was_rebuilt: bool,
    ) -> None:
        self.version = version
        self.was_rebuilt = was_rebuilt
        self._tree: RocksDbTree | None = tree
        self._families: Any = tree.families
        self._local_dir = local_dir
        self._release = release
        self._is_good = True

    def get(self, key: bytes) -> bytes | None:
        family = self._families.get(key[:2])
        if family is None:
            return None
        try:
            found: bytes | None = family.get(key[2:])
        except Exception as error:
            self._blame(error)
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
            self._blame(error)
        return found

    def scan_between(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        entries = self._opened().scan(start, stop)
        try:
            yield from entries
        except Exception as error:
            self._blame(error)

    def snapshot(self, name: StagedName) -> LocalSnapshot:
        path = snapshot_path(self._local_dir, self.version, name)
        self._opened().snapshot(path)
        return LocalSnapshot(str(path), self.version)

    def close(self) -> None:
        if self._tree is None:
            return
        tree, self._tree, self._families = self._tree, None, _Closed()
        try:
            tree.close()
        finally:
            self._release(self._is_good)

    def _opened(self) -> RocksDbTree:
        if self._tree is None:
            _say_closed()
        return self._tree

    def _blame(self, error: Exception) -> NoReturn:
        # The database is a copy: once it is closed it is thrown away, and the next try makes
        # another. So this is no fault of the state, and no reason not to try again.
        self._is_good = False
        message = f"the copy of the state on this host cannot be read: {error}"
        raise OSError(message) from error


class _Closed:
    def get(self, _: bytes) -> NoReturn:
        _say_closed()


def _say_closed() -> NoReturn:
    message = "the store is closed"
    raise ValueError(message)
