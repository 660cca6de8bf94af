"""Puts state files into a store: large ones as they are, small ones several in one object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from zlib import crc32

from msgspec.structs import replace

from penstock.errors import CorruptStateError
from penstock.state.backends.refs import FileRef, StagedName, StateLocation, StoredAt
from penstock.state.files import check_sums
from penstock.storage.contract import Storage, pieces_of
from penstock.storage.storages import storage_at

BUNDLED_BYTES = 4 << 20
"""Files below this size are put together: a request costs more than the bytes."""
_BUNDLE = ".bundle"
_AT_ONCE = 4
_VERSION_DIGITS = 12


def store_files(
    location: StateLocation, files: Sequence[FileRef], name: StagedName
) -> list[FileRef]:
    """Put files of the shared directory into the store; return refs that say where they are.

    Runs in a task. Every file is verified while it is read. Objects of a retried task have other
    names, or the same name and the same content. When this returns, they survive a loss of power.

    Raises:
        CorruptStateError: a file is missing, damaged or another one; objects may be left over.
    """
    assert location.store is not None
    storage = storage_at(location.store)
    small = [file for file in files if file.size < BUNDLED_BYTES]
    large = [file for file in files if file.size >= BUNDLED_BYTES]
    bundles = list(_bundles(small))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        stored = [
            *(
                pool.submit(_store_bundle, storage, location, bundle, _bundle_name(bundle, name, n))
                for n, bundle in enumerate(bundles)
            ),
            *(pool.submit(_store_alone, storage, location, file) for file in large),
        ]
        by_name = {file.name: file for future in stored for file in future.result()}
    return [by_name[file.name] for file in files]


def _bundles(files: Iterable[FileRef]) -> Iterator[list[FileRef]]:
    """Divide small files into groups that together are not much larger than one of them."""
    bundle: list[FileRef] = []
    for file in files:
        if bundle and sum(other.size for other in bundle) + file.size > BUNDLED_BYTES:
            yield bundle
            bundle = []
        bundle.append(file)
    if bundle:
        yield bundle


def _bundle_name(bundle: Sequence[FileRef], name: StagedName, number: int) -> str:
    return f"{bundle[0].version:0{_VERSION_DIGITS}d}-{name}-{number}{_BUNDLE}"


def _store_bundle(
    storage: Storage, location: StateLocation, bundle: Sequence[FileRef], name: str
) -> list[FileRef]:
    pieces = [b"".join(_verified(location, file)) for file in bundle]
    starts = [0, *(file.size for file in bundle)]
    storage.write(name, pieces)
    return [
        replace(file, stored=StoredAt(name, sum(starts[: n + 1]))) for n, file in enumerate(bundle)
    ]


def _store_alone(storage: Storage, location: StateLocation, file: FileRef) -> list[FileRef]:
    storage.write(file.name, _verified(location, file))
    return [replace(file, stored=StoredAt(file.name))]


def _verified(location: StateLocation, file: FileRef) -> Iterator[bytes]:
    """Return the content of a file; the last piece only if it is the file that the ref names."""
    path = location.shared_dir / file.name
    size = crc = 0
    before = b""
    try:
        for piece in chain(pieces_of(path), [b""]):
            size, crc = size + len(piece), crc32(piece, crc)
            if not piece:
                check_sums(path, (size, crc), (file.size, file.crc))
            if before:
                yield before
            before = piece
    except FileNotFoundError:
        raise CorruptStateError(str(path), "it is missing") from None
