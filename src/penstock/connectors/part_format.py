"""How the records of a file sink become files, and several files one."""
# ruff: noqa: D102 - the base class documents these methods

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from penstock.common.serialization import BulkWriter, BulkWriterFactory, Encoder
from penstock.common.typeinfo import TypeInformation

__all__ = ["BulkFormat", "OpenPiece", "PartFormat", "RowFormat"]

_COPIED_AT_ONCE = 1 << 20


class OpenPiece(ABC):
    """A file that a task is writing."""

    @abstractmethod
    def finish(self) -> None:
        """Write what is still to be written; the file is closed by others."""

    add: Callable[[Any], int]
    """Takes a record; gives the file's size so far if it may be cut there, else 0."""


class PartFormat(ABC):
    """What a file sink writes its files in."""

    @abstractmethod
    def begin(self, file: BinaryIO, type_info: TypeInformation | None) -> OpenPiece:
        """Begin a file, in the task."""

    @abstractmethod
    def join(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        """Write the records of finished files into another one, in order, on the driver."""


class RowFormat(PartFormat):
    """Record after record, whatever an encoder makes of each."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def begin(self, file: BinaryIO, type_info: TypeInformation | None) -> OpenPiece:
        return _Rows(file, self._encoder, type_info)

    def join(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        for piece in pieces:
            with piece.open("rb") as staged:
                shutil.copyfileobj(staged, file, _COPIED_AT_ONCE)


class _Rows(OpenPiece):
    def __init__(self, file: BinaryIO, encoder: Encoder, type_info: TypeInformation | None) -> None:
        encode, write, size = encoder.encode, file.write, 0

        def add(value: Any) -> int:
            nonlocal size
            data = encode(value, type_info)
            write(data)
            size += len(data)
            return size

        self.add = add

    def finish(self) -> None:
        pass


class BulkFormat(PartFormat):
    """Files that are a whole, with a beginning and an end, such as Parquet."""

    def __init__(self, factory: BulkWriterFactory) -> None:
        self._factory = factory

    def begin(self, file: BinaryIO, type_info: TypeInformation | None) -> OpenPiece:
        return _Bulk(self._factory.create(file))

    def join(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        self._factory.merge(pieces, file)


class _Bulk(OpenPiece):
    def __init__(self, writer: BulkWriter) -> None:
        self._writer = writer
        add_element = writer.add_element

        def add(value: Any) -> int:
            add_element(value)
            return 0

        self.add = add

    def finish(self) -> None:
        self._writer.finish()
