"""A directory of HDFS as a storage."""

# ruff: noqa: D102  the contract documents these methods

from __future__ import annotations

import errno
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from penstock.common.storage_url import StorageUrl
from penstock.storage.clients.hdfs_client import HdfsFailure, check_fork, client_of
from penstock.storage.contract import Storage, StoredFile, relative_names

T = TypeVar("T")

_STAGED = ".staged-"
"""How hidden names begin; a token and the final name follow."""
_TOKEN_CHARACTERS = 32
_NAME_CHARACTERS = 50
"""How much of the final name is in a hidden one: a name has at most 255 bytes."""
_STANDSTILLS = 3
_FORGET_PAUSES_S = (0.0, 0.05, 0.2, 1.0)
"""How often in a row reading may break off without a single byte."""


class HdfsStorage(Storage):
    """A directory of HDFS, through its own protocol and without a JVM.

    A file is written under a hidden name, synced (hsync), closed and then renamed; `create` renames
    it only if the name is free. Hidden files that a killed process has left are never listed. The
    client has threads, so a process that has used it must not fork.
    """

    def __init__(self, root: StorageUrl) -> None:
        self._root = root
        self._client = client_of(root)
        self._hdfs = self._client.client
        self._above = len(root.path) + (2 if root.parts else 1)
        """Where paths relative to the root begin in those of HDFS."""

    @property
    def root(self) -> StorageUrl:
        return self._root

    def create(self, path: str, data: bytes) -> None:
        target = self._at(path)
        if self._facts(path, target) is not None:
            raise FileExistsError(errno.EEXIST, "the file exists already", self.location(path))

        def attempt() -> None:
            hidden = self._stage(target, [data])
            try:
                self._hdfs.rename(hidden, target, overwrite=False)
            except Exception as error:
                # The client repeats a rename whose answer was lost: then the first one has created
                # the file.
                is_taken = isinstance(error, FileExistsError | FileNotFoundError)
                is_ours = is_taken and self._content(target) == data
                self._forget(hidden)
                if not is_ours:
                    raise

        self._repeated(path, attempt)

    def replace(self, path: str, data: bytes) -> None:
        target = self._at(path)

        def attempt() -> None:
            hidden = self._stage(target, [data])
            try:
                self._publish(hidden, target, len(data))
            except Exception:
                self._forget(hidden)
                raise

        self._repeated(path, attempt)

    def write(self, path: str, pieces: Iterable[bytes]) -> None:
        target = self._at(path)
        source = _Source(pieces)
        try:
            hidden = self._stage(target, source)
        except Exception as error:
            if source.error is error:
                raise
            raise self._os_error(path, error) from error
        try:
            self._repeated(path, lambda: self._publish(hidden, target, source.size))
        except Exception:
            self._forget(hidden)
            raise

    def read(self, path: str) -> bytes:
        target = self._at(path)
        return self._repeated(path, lambda: self._read(target))

    def stream(self, path: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        target = self._at(path)
        reader: Any = self._repeated(path, lambda: self._opened(target))
        # The client panics at ranges that are not in the file.
        end = len(reader) if length is None else min(len(reader), start + length)
        standstills = 0
        while start < end:
            begun = start
            try:
                for piece in reader.read_range_stream(start, end - start):
                    start += len(piece)
                    yield piece
                return
            except Exception as error:
                standstills = standstills + 1 if start == begun else 0
                if standstills == _STANDSTILLS or not HdfsFailure.of(error).is_passing:
                    raise self._os_error(path, error) from error

    def stat(self, path: str) -> StoredFile | None:
        facts = self._facts(path, self._at(path))
        return None if facts is None or facts.isdir else _stored(path, facts)

    def entries(self, directory: str) -> list[StoredFile]:
        at = self._at(directory)
        found = self._listed(directory, at, recursive=True)
        return sorted(
            (_stored(facts.path[self._above :], facts) for facts in found if not facts.isdir),
            key=lambda entry: entry.path,
        )

    def children(self, directory: str) -> list[str]:
        found = self._listed(directory, self._at(directory), recursive=False)
        return sorted(_name(facts) for facts in found)

    def give_name(self, path: str, name: str) -> None:
        source, target = self._at(path), self._at(name)

        def attempt() -> None:
            self._hdfs.mkdirs(target.rpartition("/")[0] or "/", create_parent=True)
            self._hdfs.rename(source, target, overwrite=False)

        self._repeated(name, attempt)

    def delete(self, path: str) -> None:
        self._delete(path, is_recursive=False)

    def delete_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_tree(self, directory: str) -> None:
        if self._at(directory) != "/":
            self._delete(directory, is_recursive=True)
            return
        for name in self.children(directory):
            self._delete(name, is_recursive=True)

    def delete_unfinished(
        self, directory: str, which: Callable[[str], bool] = lambda _: True
    ) -> None:
        at = self._at(directory)
        for facts in self._listed(directory, at, recursive=True, hidden=True):
            if not facts.isdir and _name(facts).startswith(_STAGED):
                path = facts.path[self._above :]
                above, separator, name = path.rpartition("/")
                if which(above + separator + name.removeprefix(_STAGED)[_TOKEN_CHARACTERS + 1 :]):
                    self.delete(path)

    def _at(self, path: str) -> str:
        check_fork(self._root)
        return "/" + "/".join((*self._root.parts, *relative_names(path).parts))

    def _stage(self, target: str, pieces: Iterable[bytes]) -> str:
        """Write a hidden file beside the target, and remove it if that fails."""
        directory, _, name = target.rpartition("/")
        hidden = f"{directory}/{_STAGED}{uuid.uuid4().hex}-{name[:_NAME_CHARACTERS]}"
        options = self._client.library.WriteOptions(overwrite=False, create_parent=True)
        writer = self._hdfs.create(hidden, options)
        try:
            for piece in pieces:
                writer.write(piece)
            # On the disks of the data nodes, not only in their memory.
            writer.hsync()
            writer.close()
        except BaseException:
            with suppress(Exception):
                writer.close()
            self._forget(hidden)
            raise
        return hidden

    def _publish(self, hidden: str, target: str, size: int) -> None:
        """Give a hidden file its name, in place of what has it."""
        try:
            self._hdfs.rename(hidden, target, overwrite=True)
        except FileNotFoundError:
            # The answer to an earlier request was lost: the file has its name already.
            if self._hdfs.get_file_info(target).length != size:
                raise

    def _forget(self, hidden: str) -> None:
        # The client notices a while after a connection broke; if the name node is away, the file
        # stays.
        for pause in _FORGET_PAUSES_S:
            time.sleep(pause)
            with suppress(Exception):
                self._hdfs.delete(hidden, recursive=False)
                return

    def _read(self, target: str) -> bytes:
        content: bytes = self._opened(target).read()
        return content

    def _opened(self, target: str) -> Any:
        reader = self._hdfs.read(target)
        if len(reader) != self._hdfs.get_file_info(target).length:
            # With `file.close.num-committed-allowed` above 0 the name node closes a file before it
            # has heard of its last block from a data node, and until then gives readers the others.
            message = "the name node does not know where all blocks of the file are yet"
            raise OSError(message)
        return reader

    def _content(self, target: str) -> bytes | None:
        try:
            return self._read(target)
        except FileNotFoundError:
            return None

    def _facts(self, path: str, target: str) -> Any | None:
        try:
            return self._repeated(path, lambda: self._hdfs.get_file_info(target))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _listed(
        self, directory: str, at: str, *, recursive: bool, hidden: bool = False
    ) -> list[Any]:
        try:
            found = self._repeated(
                directory, lambda: list(self._hdfs.list_status(at, recursive=recursive))
            )
        except (FileNotFoundError, NotADirectoryError):
            return []
        # A file is listed as its own content.
        return [f for f in found if f.path != at and (hidden or not _name(f).startswith(_STAGED))]

    def _delete(self, path: str, *, is_recursive: bool) -> None:
        target = self._at(path)
        with suppress(FileNotFoundError, NotADirectoryError):
            self._repeated(path, lambda: self._hdfs.delete(target, recursive=is_recursive))

    def _repeated(self, path: str, attempt: Callable[[], T]) -> T:
        url = self._root / path
        return self._client.repetition.run(attempt, url, self._root, HdfsFailure.of)

    def _os_error(self, path: str, error: Exception) -> OSError:
        return HdfsFailure.of(error).as_os_error(self._root / path, self._root)


class _Source:
    """Pieces of a file, which counts them and remembers an error of their own."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.size = 0
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._pieces:
                self.size += len(piece)
                yield piece
        except Exception as error:
            self.error = error
            raise


def _name(facts: Any) -> str:
    name: str = facts.path.rpartition("/")[2]
    return name


def _stored(path: str, facts: Any) -> StoredFile:
    return StoredFile(path, facts.length, facts.modification_time / 1000)
