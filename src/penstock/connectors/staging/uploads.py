"""Uploads: the staged files of one committable as one file in a store, and back.

One request for each subtask and checkpoint is what a store is asked for, however many micro-batches
a checkpoint has. The committable names the files in order, with their sizes and checksums.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, starmap
from pathlib import Path
from typing import BinaryIO

from penstock.common.new_files import create_file
from penstock.errors import LostStagedFileError
from penstock.storage.contract import PIECE_BYTES, Storage, pieces_of

UPLOAD = ".upload"
"""The suffix of their names."""

Files = Sequence[tuple[Path, int]]
"""Files in the order in which an upload has them, with their sizes."""

_THREADS = 4


def put_uploads(storage: Storage, uploads: Mapping[str, Files]) -> None:
    """Write the content of files, one after the other, under the names of their uploads.

    Raises:
        LostStagedFileError: a file does not have its size.
    """
    filled = {name: files for name, files in uploads.items() if files}

    def put(name: str) -> None:
        storage.write(name, chain.from_iterable(starmap(_content, filled[name])))

    if len(filled) <= 1:
        for name in filled:
            put(name)
        return
    with ThreadPoolExecutor(min(len(filled), _THREADS), "upload") as threads:
        list(threads.map(put, filled))


def fetch_upload(storage: Storage, name: str, files: Files) -> None:
    """Write the files of an upload, given in order with their sizes; a crash leaves none half.

    Raises:
        LostStagedFileError: the upload is missing, or its size is another one.
    """
    expected, found = sum(size for _, size in files), 0
    with contextlib.suppress(FileNotFoundError), storage.open(name) as upload:
        for path, size in files:
            copied = _copy(upload, path, size)
            found += copied
            if copied < size:
                break
        found += len(upload.read(1))
    if found != expected:
        raise LostStagedFileError(storage.location(name), expected, found)


def _content(path: Path, size: int) -> Iterator[bytes]:
    found = 0
    for piece in pieces_of(path):
        found += len(piece)
        yield piece
    if found != size:
        raise LostStagedFileError(str(path), size, found)


def _copy(upload: BinaryIO, path: Path, size: int) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    copied = 0
    try:
        with create_file(hidden) as file:
            for piece in _pieces(upload, size):
                file.write(piece)
                copied += len(piece)
        if copied == size:
            hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)
    return copied


def _pieces(upload: BinaryIO, size: int) -> Iterator[bytes]:
    while size and (piece := upload.read(min(size, PIECE_BYTES))):
        size -= len(piece)
        yield piece
