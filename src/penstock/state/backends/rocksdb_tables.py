"""RocksDB's files in the shared directory: sent there once, brought back with proof.

A table (an SST file) is immutable and says, in its last few hundred bytes, which session of which
database wrote it under which number. A digest of these bytes is part of the table's shared name,
so the same table is known again on any host, and another table of the same number is not taken
for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import IO
from zlib import crc32

from penstock.errors import CorruptStateError
from penstock.state.backends.refs import FileRef, StagedName, StatePlace, TableFiles
from penstock.state.files import check_sums, file_name

__all__ = ["bring_tables", "send_tables"]

_TABLE = ".sst"
_CURRENT = "CURRENT"
_MANIFEST = "MANIFEST-*"
_TAIL = 8192
_PIECE = 1 << 20
_MARK = "~"


def send_tables(
    snapshot: Path,
    place: StatePlace,
    version: int,
    name: StagedName,
    known: Iterable[FileRef] = (),
    *,
    durable: bool,
) -> TableFiles:
    """Copy a snapshot's files into the shared directory, except the tables that are ``known``.

    Raises:
        FileNotFoundError: if the snapshot is not there, or goes away meanwhile.
    """
    manifests = sorted(snapshot.glob(_MANIFEST))
    # The smallest file that makes a directory a database comes last, here and on the way back.
    paths = [*sorted(snapshot.glob(f"*{_TABLE}")), *manifests, snapshot / _CURRENT]
    there = {_own_name(file): file for file in known if file.name.endswith(_TABLE)}
    place.shared_dir.mkdir(parents=True, exist_ok=True)
    files = []
    for path in paths:
        own = f"{_fingerprint(path)}{_MARK}{path.name}"
        file = there.get(own)
        if file is None or file.size != path.stat().st_size:
            shared = file_name(version, name, f"{_MARK}{own}")
            with path.open("rb") as source, (place.shared_dir / shared).open("xb") as target:
                size, crc = _copy(source, target)
                if durable:
                    target.flush()
                    os.fsync(target.fileno())
            file = FileRef(shared, version, size, crc)
        files.append(file)
    return TableFiles(version, tuple(files))


def bring_tables(place: StatePlace, tables: TableFiles, path: Path) -> None:
    """Copy a base's files into a new local directory, each proven.

    Killed anywhere, it leaves a directory that is no database.

    Raises:
        CorruptStateError: if a file is missing, damaged or another one.
    """
    path.mkdir(parents=True)
    for file in tables.files:
        shared = place.shared_dir / file.name
        try:
            with shared.open("rb") as source, (path / _local_name(file)).open("xb") as target:
                size, crc = _copy(source, target)
        except FileNotFoundError:
            raise CorruptStateError(str(shared), "it is missing") from None
        check_sums(shared, file, size, crc)


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
