"""RocksDB's files in the shared directory or a store: uploaded once, verified when downloaded.

An SST file is immutable, and its last few hundred bytes identify the session of the database that
wrote it and its number. A digest of these bytes is part of the file's shared name, so the same file
is recognised on any host, and another file of the same number is not mistaken for it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import IO
from zlib import crc32

from penstock.common.new_files import create_file
from penstock.state.backends.host_files import HostFiles
from penstock.state.backends.refs import FileRef, SstFiles, StagedName, StateLocation
from penstock.state.files import check_sums, file_name, open_file, place_of
from penstock.state.stored_files import NewFile, store_new_files

_TABLE = ".sst"
_CURRENT = "CURRENT"
_MANIFEST = "MANIFEST-*"
_TAIL = 8192
_PIECE = 1 << 20
_AT_ONCE = 4
_MARK = "~"


def upload_sst_files(
    snapshot: Path,
    location: StateLocation,
    version: int,
    name: StagedName,
    known: Iterable[FileRef] = (),
    *,
    durable: bool,
) -> SstFiles:
    """Copy a snapshot's files, except the SST files that are ``known``.

    They go into the store of the state if it has one, else into the shared directory.

    Raises:
        FileNotFoundError: if the snapshot does not exist, or vanishes meanwhile.
    """
    manifests = sorted(snapshot.glob(_MANIFEST))
    # The file that makes a directory a database comes last, in both directions.
    paths = [*sorted(snapshot.glob(f"*{_TABLE}")), *manifests, snapshot / _CURRENT]
    there = {_own_name(file): file for file in known if file.name.endswith(_TABLE)}
    files: list[FileRef | None] = []
    new = []
    for path in paths:
        own = f"{_fingerprint(path)}{_MARK}{path.name}"
        file = there.get(own)
        if file is None or file.size != path.stat().st_size:
            new.append(NewFile(path, file_name(version, name, f"{_MARK}{own}")))
            file = None
        files.append(file)
    if location.store is None:
        added = iter([_share(file, location, version, durable=durable) for file in new])
    else:
        added = iter(store_new_files(location, new, version, name))
    return SstFiles(version, tuple(file or next(added) for file in files))


def _share(file: NewFile, location: StateLocation, version: int, *, durable: bool) -> FileRef:
    location.shared_dir.mkdir(parents=True, exist_ok=True)
    with file.path.open("rb") as source, create_file(location.shared_dir / file.name) as target:
        size, crc = _copy(source, target)
        if durable:
            target.flush()
            os.fsync(target.fileno())
    return FileRef(file.name, version, size, crc)


def download_sst_files(location: StateLocation, tables: SstFiles, path: Path) -> None:
    """Copy a base's files into a new local directory, and verify each.

    If the process is killed, it leaves a directory that is not a database.

    Raises:
        CorruptStateError: if a file is missing, damaged or another one.
    """

    def download(file: FileRef) -> None:
        with open_file(location, file) as source, (path / _local_name(file)).open("xb") as target:
            size, crc = _copy(source, target)
        check_sums(place_of(location, file), (size, crc), (file.size, file.crc))

    path.mkdir(parents=True)
    *files, last = tables.files
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(download, file) for file in files]:
            done.result()
    download(last)


def link_sst_files(location: StateLocation, tables: SstFiles, path: Path, files: HostFiles) -> None:
    """Link a base's files on this host into a new directory; each was verified once.

    Raises:
        CorruptStateError: if a file is missing, damaged or another one.
    """
    path.mkdir(parents=True)
    for file in tables.files:
        source, target = files.get(location, file), path / _local_name(file)
        if file.name.endswith(_TABLE):
            os.link(source, target)
        else:
            shutil.copyfile(source, target)  # RocksDB writes it again


def _copy(source: IO[bytes], target: IO[bytes]) -> tuple[int, int]:
    size = crc = 0
    while piece := source.read(_PIECE):
        target.write(piece)
        size, crc = size + len(piece), crc32(piece, crc)
    return size, crc


def _fingerprint(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return blake2b(file.read(), digest_size=12).hexdigest()


def _own_name(file: FileRef) -> str:
    return _MARK.join(file.name.split(_MARK)[-2:])


def _local_name(file: FileRef) -> str:
    return file.name.rpartition(_MARK)[2]
