"""A bucket of an object store, or a place in it, as a storage: S3, Google Cloud Storage, Azure."""

# ruff: noqa: D102  the contract documents these methods

from __future__ import annotations

import bisect
import errno
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from penstock.common.storage_url import StorageUrl
from penstock.storage.clients.object_store_client import check_fork, client_of
from penstock.storage.clients.object_store_errors import Failure
from penstock.storage.clients.s3_uploads import abort_uploads
from penstock.storage.contract import PIECE_BYTES, Storage, StoredFile, relative_names

logger = logging.getLogger("penstock.storage")

T = TypeVar("T")

PART_BYTES = 8 << 20
"""A larger file is uploaded in parts of this size."""
_PARTS_AT_ONCE = 2
_BULK = 1000
"""How many objects a request lists or deletes."""
_STANDSTILLS = 3
"""How often in a row a download may break off without a single byte."""


class ObjectStorage(Storage):
    """The objects whose keys begin with the names of the root.

    `create` is a conditional request (If-None-Match), every other operation a plain one; nothing is
    renamed, copied or appended to. Requests are repeated with growing waits until
    `retry-timeout` has passed. Objects that are no files, because their key ends with `/`, are
    ignored. The client has threads, so a process that has used it must not fork.
    """

    def __init__(self, root: StorageUrl) -> None:
        self._root = root
        self._client = client_of(root)
        self._obstore, self._store = self._client.library, self._client.store
        exceptions = self._obstore.exceptions
        self._exists_error: type[Exception] = exceptions.AlreadyExistsError
        # ValueError: a name that no object can have; FileNotFoundError: answer 404.
        self._errors: tuple[type[Exception], ...] = (
            exceptions.BaseError,
            FileNotFoundError,
            ValueError,
        )

    @property
    def root(self) -> StorageUrl:
        return self._root

    def create(self, path: str, data: bytes) -> None:
        key = self._key(path)

        def attempt() -> None:
            try:
                self._obstore.put(self._store, key, data, mode="create", use_multipart=False)
            except self._exists_error:
                # Another writer's, or our own: the answer to an earlier attempt was lost. If there
                # is nothing, several requests met, and the store has refused this one (409).
                found = self._content(key)
                if found is None:
                    raise
                if found != data:
                    raise _Taken from None

        try:
            self._repeated(path, attempt)
        except _Taken:
            raise self._exists(path) from None

    def replace(self, path: str, data: bytes) -> None:
        key = self._key(path)
        self._repeated(
            path,
            lambda: self._obstore.put(
                self._store, key, data, mode="overwrite", use_multipart=False
            ),
        )

    def write(self, path: str, pieces: Iterable[bytes]) -> None:
        rest = iter(pieces)
        beginning: list[bytes] = []
        size = 0
        for piece in rest:
            beginning.append(piece)
            size += len(piece)
            if size >= PART_BYTES:
                break
        if size < PART_BYTES:
            self.replace(path, b"".join(beginning))
        else:
            self._upload(path, itertools.chain(beginning, rest))

    def read(self, path: str) -> bytes:
        key = self._key(path)
        return self._repeated(path, lambda: self._get(key))

    def stream(self, path: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        if length == 0:
            # There are no requests for no bytes.
            if not self.exists(path):
                raise FileNotFoundError(errno.ENOENT, "no such object", self.location(path))
            return
        key = self._key(path)
        end = None if length is None else start + length
        version: str | None = None
        standstills = 0
        while end is None or start < end:
            answer = self._opened(path, key, start, end, version)
            if answer is None:
                return
            version = answer.meta["e_tag"]
            begun = start
            try:
                for piece in answer.stream(PIECE_BYTES):
                    start += len(piece)
                    yield bytes(piece)
                return
            except self._errors as error:
                standstills = standstills + 1 if start == begun else 0
                failure = Failure.of(error)
                if standstills == _STANDSTILLS or not failure.is_passing:
                    raise self._os_error(path, failure) from error
                logger.info(
                    "Reading %s broke off at byte %d (%s): resuming there.",
                    self.location(path),
                    start,
                    failure.summary,
                )

    def stat(self, path: str) -> StoredFile | None:
        key = self._key(path)
        try:
            facts = self._repeated(path, lambda: self._obstore.head(self._store, key))
        except FileNotFoundError:
            return None
        return _stored(path, facts)

    def entries(self, directory: str) -> list[StoredFile]:
        key = self._key(directory)
        found = self._repeated(directory, lambda: list(itertools.chain(*self._pages(key))))
        entries = sorted(found, key=lambda entry: entry.path)
        paths = [entry.path for entry in entries]

        def is_directory(entry: StoredFile) -> bool:
            # The client cuts off the `/` at the end of the keys with which tools mark directories.
            below = f"{entry.path}/"
            at = bisect.bisect_left(paths, below)
            return entry.size == 0 and at < len(paths) and paths[at].startswith(below)

        return [entry for entry in entries if not is_directory(entry)]

    def children(self, directory: str) -> list[str]:
        prefix = self._key(directory)
        found = self._repeated(
            directory,
            lambda: self._obstore.list_with_delimiter(self._store, prefix or None),
        )
        keys = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
        return sorted({key.rpartition("/")[2] for key in keys})

    def give_name(self, path: str, name: str) -> None:
        source, target = self._key(path), self._key(name)

        def attempt() -> None:
            try:
                self._obstore.copy(self._store, source, target, overwrite=False)
            except self._exists_error:
                # If there is nothing, several requests met, and the store has refused this one.
                if self.stat(name) is None:
                    raise
                raise _Taken from None

        try:
            self._repeated(name, attempt)
        except _Taken:
            raise self._exists(name) from None

    def delete(self, path: str) -> None:
        self._delete([path])

    def delete_all(self, paths: Iterable[str]) -> None:
        remaining = iter(paths)
        while some := list(itertools.islice(remaining, _BULK)):
            self._delete(some)

    def delete_tree(self, directory: str) -> None:
        key = self._key(directory)

        def attempt() -> None:
            for page in self._pages(key):
                self._delete([entry.path for entry in page])

        # Begins again from the front: what is deleted is not listed any more.
        self._repeated(directory, attempt)

    def delete_unfinished(
        self, directory: str, which: Callable[[str], bool] = lambda _: True
    ) -> None:
        if self._root.scheme == "s3":
            abort_uploads(self._client, self._root, self._prefix(directory), which)

    def _key(self, path: str) -> str:
        check_fork(self._root)
        return "/".join((*self._root.parts, *relative_names(path).parts))

    def _prefix(self, directory: str) -> str:
        key = self._key(directory)
        return f"{key}/" if key else ""

    def _get(self, key: str) -> bytes:
        return bytes(self._obstore.get(self._store, key).bytes())

    def _content(self, key: str) -> bytes | None:
        try:
            return self._get(key)
        except FileNotFoundError:
            return None

    def _opened(
        self, path: str, key: str, start: int, end: int | None, version: str | None
    ) -> Any | None:
        """Request the bytes from an offset on; None if there are none."""
        options: dict[str, object] = {} if version is None else {"if_match": version}
        if end is not None:
            options["range"] = (start, end)
        elif start:
            options["range"] = {"offset": start}

        def attempt() -> Any | None:
            try:
                return self._obstore.get(self._store, key, options=options)
            except self._errors as error:
                if Failure.of(error).is_out_of_range:
                    return None
                raise

        return self._repeated(path, attempt)

    def _pages(self, key: str) -> Iterator[list[StoredFile]]:
        above = len(self._root.path) + 1 if self._root.parts else 0
        for page in self._obstore.list(self._store, key or None, chunk_size=_BULK):
            yield [_stored(facts["path"][above:], facts) for facts in page]

    def _delete(self, paths: list[str]) -> None:
        keys = [self._key(path) for path in paths]
        try:
            self._repeated(paths[0], lambda: self._obstore.delete(self._store, keys))
        except FileNotFoundError:
            # Not S3: other stores refuse to delete what is not there, and stop at the first one.
            for path, key in zip(paths, keys, strict=True):
                with suppress(FileNotFoundError):
                    self._repeated(path, partial(self._obstore.delete, self._store, key))

    def _upload(self, path: str, pieces: Iterable[bytes]) -> None:
        """Upload parts; an error aborts the upload, so that nothing of it is left."""
        key = self._key(path)
        # Not `put`: it would ask for pieces in its own thread, where no store can be read.
        writer = self._obstore.open_writer(
            self._store, key, buffer_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE
        )
        failed = _Source()
        try:
            with writer:
                for piece in failed.noted(pieces):
                    writer.write(piece)
        except self._errors as error:
            if failed.error is not None:
                raise failed.error from None
            raise self._os_error(path, Failure.of(error)) from error

    def _repeated(self, path: str, attempt: Callable[[], T]) -> T:
        """Repeat what the client itself does not: conflicts, and broken or late answers."""
        return self._client.repetition.run(attempt, self._root / path, self._root, self._explain)

    def _explain(self, error: Exception) -> Failure | None:
        return Failure.of(error) if isinstance(error, self._errors) else None

    def _exists(self, path: str) -> FileExistsError:
        return FileExistsError(errno.EEXIST, "the object exists already", self.location(path))

    def _os_error(self, path: str, failure: Failure) -> OSError:
        return failure.as_os_error(self._root / path, self._root)


def _stored(path: str, facts: Any) -> StoredFile:
    modified = facts["last_modified"].timestamp()
    return StoredFile(path, facts["size"], modified, facts["e_tag"] or "")


class _Taken(Exception):
    """Another writer has created the object."""


class _Source:
    """Remembers that it was the iterator that raised, not the store."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def noted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        try:
            yield from pieces
        except Exception as error:
            self.error = error
            raise
