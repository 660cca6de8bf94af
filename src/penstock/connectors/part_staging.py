"""The task's half of a file sink: staged files, a few per bucket and task attempt."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from penstock.connectors.part_format import OpenPiece, PartFormat
from penstock.connectors.sink import SinkWriter, WriterContext
from penstock.connectors.staging import load_staged, stage_bytes
from penstock.connectors.staging_area import StagingArea

__all__ = ["PartFileWriter", "StagedPart", "decode_parts"]


class StagedPart(msgspec.Struct, frozen=True, array_like=True):
    """A staged file: the bucket its records belong to, where it is, its size in bytes."""

    bucket: str
    path: str
    size: int


_decoder = msgspec.msgpack.Decoder(list[StagedPart])


def decode_parts(staged: bytes) -> list[StagedPart]:
    """Tell what a writer staged."""
    data = load_staged(staged)
    return _decoder.decode(data) if data else []


class _OpenFile:
    __slots__ = ("add", "file", "path", "piece")

    def __init__(self, path: Path, begin: Callable[[BinaryIO], OpenPiece]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.file: BinaryIO = path.open("xb")
        self.piece = begin(self.file)
        self.add = self.piece.add


class PartFileWriter(SinkWriter):
    """Writes records into files of its own, a new one where one gets too large.

    Files end between records, so that whoever puts them together need not know about records.
    """

    def __init__(
        self,
        context: WriterContext,
        area: StagingArea,
        part_format: PartFormat,
        bucket_of: Callable[[Any], str],
        largest_size: int | None,
    ) -> None:
        self._context = context
        self._area = area
        self._format = part_format
        self._bucket_of = bucket_of
        self._largest_size = largest_size
        self._open: dict[str, _OpenFile] = {}
        self._parts: list[StagedPart] = []
        self._count = 0

    def write(self, value: Any) -> None:
        bucket = self._bucket_of(value)
        part = self._open.get(bucket)
        if part is None:
            part = self._begin(bucket)
        size = part.add(value)
        if self._largest_size is not None and size > self._largest_size:
            self._end(bucket)

    def stage(self) -> bytes:
        for bucket in list(self._open):
            self._end(bucket)
        data = msgspec.msgpack.encode(self._parts) if self._parts else b""
        return stage_bytes(data, self._context)

    def abort(self) -> None:
        files = [part.file for part in self._open.values()]
        self._open.clear()  # first: a writer that is dropped may still write
        for file in files:
            file.close()
        for number in range(self._count):
            self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._area.piece(self._context.attempt, self._context.name, number)

    def _begin(self, bucket: str) -> _OpenFile:
        number, self._count = self._count, self._count + 1
        type_info = self._context.type_info
        part = _OpenFile(self._path(number), lambda file: self._format.begin(file, type_info))
        self._open[bucket] = part
        return part

    def _end(self, bucket: str) -> None:
        part = self._open[bucket]
        part.piece.finish()
        size = part.file.tell()
        part.file.close()
        del self._open[bucket]
        self._parts.append(StagedPart(bucket, str(part.path), size))
