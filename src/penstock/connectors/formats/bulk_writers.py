"""Writers of bulk formats that are made of functions."""
# ruff: noqa: D102 - the base classes document these methods

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from penstock.common.serialization import BulkWriter, BulkWriterFactory

_COPY_BYTES = 1 << 20


class FunctionWriter(BulkWriter):
    """Calls one function for each element, and another one at the end."""

    def __init__(
        self, add: Callable[[Any], object], finish: Callable[[], None] = lambda: None
    ) -> None:
        self.add_element = add  # type: ignore[method-assign,assignment]
        self.finish = finish  # type: ignore[method-assign]

    def add_element(self, element: Any) -> None: ...

    def finish(self) -> None: ...


class EncodedRecords(BulkWriterFactory):
    """Writes a header, and then the bytes of one record after the other.

    ``encoder`` makes the function that encodes a record; it is called in each task.
    """

    def __init__(self, encoder: Callable[[], Callable[[Any], bytes]], header: bytes = b"") -> None:
        self._encoder = encoder
        self._header = header

    def create(self, file: BinaryIO) -> BulkWriter:
        file.write(self._header)
        write, encode = file.write, self._encoder()
        return FunctionWriter(lambda element: write(encode(element)))

    def merge(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        file.write(self._header)
        append_files(pieces, file, skip=len(self._header))


def append_files(pieces: Sequence[Path], file: BinaryIO, *, skip: int = 0) -> None:
    """Copy files to the end of another one, each without its first bytes."""
    for piece in pieces:
        with piece.open("rb") as staged:
            staged.seek(skip)
            shutil.copyfileobj(staged, file, _COPY_BYTES)
