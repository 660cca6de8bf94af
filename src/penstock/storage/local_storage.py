"""A directory on this machine, or one that all machines mount, as a storage."""

# ruff: noqa: D102  the contract documents these methods

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.common.new_files import naming
from penstock.storage.contract import PIECE_BYTES, Storage, StoredFile, relative_names
from penstock.storage.durable_files import (
    give_final_name,
    make_directory,
    rename_if_absent,
    sync_directory,
)

_STAGED = ".staged-"
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems without hard links."""


class LocalStorage(Storage):
    """A directory on this machine, or one that all machines mount.

    A file is written under a hidden name and then linked (create) or renamed (replace). Without
    hard links, create renames it only if the name is free. Hidden files that a killed process has
    left are never listed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def root(self) -> Path:
        return self._root

    def create(self, path: str, data: bytes) -> None:
        target = self._at(path)
        if target.exists():
            raise FileExistsError(target)
        with self._staged(target, [data]) as staged:
            try:
                _name_if_absent(staged, target)
            except (FileExistsError, FileNotFoundError):
                # NFS and FUSE may send a request twice: then the first one has created the file.
                if not _has_content(target, data):
                    raise
        sync_directory(target.parent)

    def replace(self, path: str, data: bytes) -> None:
        target = self._at(path)
        with self._staged(target, [data]) as staged:
            staged.replace(target)
        sync_directory(target.parent)

    def write(self, path: str, pieces: Iterable[bytes]) -> None:
        target = self._at(path)
        with self._staged(target, pieces) as staged:
            staged.replace(target)
        sync_directory(target.parent)

    def read(self, path: str) -> bytes:
        return self._at(path).read_bytes()

    def stream(self, path: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        with self._at(path).open("rb") as file:
            file.seek(start)
            while piece := file.read(PIECE_BYTES if length is None else min(PIECE_BYTES, length)):
                length = None if length is None else length - len(piece)
                yield piece

    def stat(self, path: str) -> StoredFile | None:
        target = self._at(path)
        return _stored(target, path) if target.is_file() else None

    def entries(self, directory: str) -> list[StoredFile]:
        return [entry for path in self.list(directory) if (entry := self.stat(path))]

    def children(self, directory: str) -> list[str]:
        try:
            names = os.listdir(self._at(directory))  # noqa: PTH208  the names are all that is needed
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in names if not name.startswith(_STAGED))

    def give_name(self, path: str, name: str) -> None:
        target = self._at(name)
        make_directory(target.parent)
        give_final_name(self._at(path), target)
        sync_directory(target.parent)

    def delete(self, path: str) -> None:
        self._at(path).unlink(missing_ok=True)

    def delete_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_tree(self, directory: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self._at(directory))

    def list(self, directory: str) -> list[str]:
        found = []
        for place, _, names in os.walk(self._at(directory)):
            below = Path(place).relative_to(self._root).as_posix()
            # Plain text: journals and histories with many files are listed often.
            prefix = "" if below == "." else f"{below}/"
            found += [prefix + name for name in names if not name.startswith(_STAGED)]
        return sorted(found)

    def _at(self, path: str) -> Path:
        return self._root / relative_names(path)

    @contextmanager
    def _staged(self, target: Path, pieces: Iterable[bytes]) -> Iterator[Path]:
        make_directory(target.parent)
        staged = target.with_name(f"{_STAGED}{uuid.uuid4().hex}")
        try:
            with naming(target), staged.open("xb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            yield staged
        finally:
            staged.unlink(missing_ok=True)


def _name_if_absent(staged: Path, target: Path) -> None:
    try:
        os.link(staged, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        rename_if_absent(staged, target)


def _has_content(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except FileNotFoundError:
        return False


def _stored(target: Path, path: str) -> StoredFile | None:
    try:
        facts = target.stat()
    except FileNotFoundError:
        return None
    return StoredFile(path, facts.st_size, facts.st_mtime)
