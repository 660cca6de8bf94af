"""Puts state files into a store: large ones as they are, small ones several in one object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from zlib import crc32

from msgspec.structs import replace

from penstock.errors import PenstockError
from penstock.state.backends.refs import FileRef, StagedName, StateLocation, StoredAt
from penstock.state.files import check_sums, file_name, missing
from penstock.storage.contract import Storage, pieces_of
from penstock.storage.storages import storage_at

BUNDLED_BYTES = 4 << 20
"""Files below this size are put together: a request costs more than the bytes."""
_BUNDLE = ".bundle"
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class NewFile:
    """A local file that is to be a state file of this name."""

    path: Path
    name: str


def store_files(
    location: StateLocation, files: Sequence[FileRef], version: int, name: StagedName
) -> list[FileRef]:
    """Put files of the shared directory into the store; return refs that say where they are.

    Runs in a task. Every file is verified while it is read. Objects of a retried task have other
    names, or the same name and the same content. When this returns, they survive a loss of power.

    Raises:
        CorruptStateError: a file is missing, damaged or another one; objects may be left over.
        StateElsewhereError: a file is missing, and may be on another host.
    """
    sources = [_known(location, file) for file in files]
    return _store(location, sources, version, name)


def store_new_files(
    location: StateLocation, files: Sequence[NewFile], version: int, name: StagedName
) -> list[FileRef]:
    """Put new files into the store, and compute their checksums meanwhile; like `store_files`.

    Raises:
        FileNotFoundError: a file does not exist, or vanishes meanwhile.
    """
    return _store(location, [_Source(f.path, f.name) for f in files], version, name)


@dataclass(frozen=True, slots=True)
class _Source:
    path: Path
    name: str
    ref: FileRef | None = None
    """What is known of the file; None if it is new."""
    missing: PenstockError | None = None
    """What to raise if it does not exist; None for `FileNotFoundError`."""


def _known(location: StateLocation, ref: FileRef) -> _Source:
    return _Source(location.shared_dir / ref.name, ref.name, ref, missing(location, ref))


class _Sums:
    """Size and CRC-32 of what was read of a file."""

    def __init__(self) -> None:
        self.size = self.crc = 0

    def of(self, source: _Source) -> Iterator[bytes]:
        """Return the content of a file; the last piece only if the file is what is known of it."""
        before = b""
        try:
            for piece in pieces_of(source.path):
                self.size, self.crc = self.size + len(piece), crc32(piece, self.crc)
                if before:
                    yield before
                before = piece
        except FileNotFoundError:
            if source.missing is None:
                raise
            raise source.missing from None
        if source.ref is not None:
            wanted = source.ref.size, source.ref.crc
            check_sums(source.path, (self.size, self.crc), wanted)
        yield before


def _store(
    location: StateLocation, sources: Sequence[_Source], version: int, name: StagedName
) -> list[FileRef]:
    assert location.store is not None
    storage = storage_at(location.store)
    small: list[tuple[_Source, int]] = []
    large: list[tuple[_Source, int]] = []
    for source in sources:
        size = source.path.stat().st_size if source.ref is None else source.ref.size
        (large if size >= BUNDLED_BYTES else small).append((source, size))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        tasks = [pool.submit(_store_alone, storage, source, version) for source, _ in large] + [
            pool.submit(
                _store_bundle, storage, bundle, version, file_name(version, name, f"-{n}{_BUNDLE}")
            )
            for n, bundle in enumerate(_bundles(small))
        ]
        by_name = {file.name: file for task in tasks for file in task.result()}
    return [by_name[source.name] for source in sources]


def _bundles(files: Iterable[tuple[_Source, int]]) -> Iterator[list[_Source]]:
    """Divide small files into groups that together are not much larger than one of them."""
    bundle: list[_Source] = []
    filled = 0
    for source, size in files:
        if bundle and filled + size > BUNDLED_BYTES:
            yield bundle
            bundle, filled = [], 0
        bundle.append(source)
        filled += size
    if bundle:
        yield bundle


def _store_bundle(
    storage: Storage, bundle: Sequence[_Source], version: int, name: str
) -> list[FileRef]:
    sums = [_Sums() for _ in bundle]
    contents = [b"".join(s.of(source)) for s, source in zip(sums, bundle, strict=True)]
    storage.write(name, contents)
    starts = accumulate((len(content) for content in contents), initial=0)
    located = map(partial(StoredAt, name), starts)
    return [
        _ref(source, s, version, at) for source, s, at in zip(bundle, sums, located, strict=False)
    ]


def _store_alone(storage: Storage, source: _Source, version: int) -> list[FileRef]:
    sums = _Sums()
    storage.write(source.name, sums.of(source))
    return [_ref(source, sums, version, StoredAt(source.name))]


def _ref(source: _Source, sums: _Sums, version: int, stored: StoredAt) -> FileRef:
    if source.ref is None:
        return FileRef(source.name, version, sums.size, sums.crc, stored)
    return replace(source.ref, stored=stored)
