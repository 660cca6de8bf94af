"""The task's half of a file sink: staged files, a few per bucket and task attempt."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from penstock.common.serialization import Encoder
from penstock.connectors.sink import SinkWriter, WriterContext
from penstock.connectors.staging import load_staged, stage_bytes

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


class _OpenPart:
    __slots__ = ("file", "path", "size")

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.file: BinaryIO = path.open("xb")
        self.size = 0


class PartFileWriter(SinkWriter):
    """Writes records into files of its own directory, a new file where one gets too large.

    Files end between records, so that whoever puts them together need not know about records.
    """

    def __init__(
        self,
        context: WriterContext,
        staging: Path,
        encoder: Encoder,
        bucket_of: Callable[[Any], str],
        largest_size: int | None,
    ) -> None:
        self._context = context
        self._directory = staging / context.name
        self._encode = encoder.encode
        self._type_info = context.type_info
        self._bucket_of = bucket_of
        self._largest_size = largest_size
        self._open: dict[str, _OpenPart] = {}
        self._parts: list[StagedPart] = []
        self._count = 0

    def write(self, value: Any) -> None:
        bucket = self._bucket_of(value)
        part = self._open.get(bucket)
        if part is None:
            part = self._begin(bucket)
        data = self._encode(value, self._type_info)
        part.file.write(data)
        part.size += len(data)
        if self._largest_size is not None and part.size > self._largest_size:
            self._end(bucket)

    def stage(self) -> bytes:
        for bucket in list(self._open):
            self._end(bucket)
        data = msgspec.msgpack.encode(self._parts) if self._parts else b""
        return stage_bytes(data, self._context)

    def abort(self) -> None:
        for part in self._open.values():
            part.file.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _begin(self, bucket: str) -> _OpenPart:
        part = self._open[bucket] = _OpenPart(self._directory / str(self._count))
        self._count += 1
        return part

    def _end(self, bucket: str) -> None:
        part = self._open.pop(bucket)
        part.file.close()
        self._parts.append(StagedPart(bucket, str(part.path), part.size))
