"""Writer of a file sink: stages files in the task, at least one per bucket that has records."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from penstock.common.new_files import name_path, naming
from penstock.common.serialization import BulkWriterFactory, Encoder
from penstock.common.storage_url import Location
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.contracts.sink import SinkWriter, WriterContext
from penstock.connectors.files.bucket_assigner import check_bucket
from penstock.connectors.files.part_files import NewPiece, OpenPart, PartFiles, PartFormat
from penstock.connectors.formats.bulk_writers import append_files
from penstock.connectors.staging.staged_output import load_staged, stage_bytes


class RowFormat(PartFormat):
    """Record after record, each as an encoder writes it."""

    joins_bytes = True

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def begin(self, file: BinaryIO, type_info: TypeInformation | None) -> OpenPart:
        encode, write, size = self._encoder.encode, file.write, 0

        def add(value: Any) -> int:
            nonlocal size
            data = encode(value, type_info)
            write(data)
            size += len(data)
            return size

        return OpenPart(add, lambda: None)

    def join(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        append_files(pieces, file)


class BulkFormat(PartFormat):
    """Files with a beginning and an end, such as Parquet."""

    def __init__(self, factory: BulkWriterFactory) -> None:
        self._factory = factory

    def begin(self, file: BinaryIO, type_info: TypeInformation | None) -> OpenPart:
        writer = self._factory.create(file)
        add_element = writer.add_element

        def add(value: Any) -> int:
            add_element(value)
            return 0

        return OpenPart(add, writer.finish)

    def join(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        self._factory.merge(pieces, file)


class StagedPart(msgspec.Struct, frozen=True, array_like=True):
    """A staged file: the bucket of its records, its path, its size in bytes, its CRC-32."""

    bucket: str
    path: str
    size: int
    crc: int


_decoder = msgspec.msgpack.Decoder(list[StagedPart])


def decode_parts(staged: bytes, staging_dir: Path) -> list[StagedPart]:
    """Return what a writer staged."""
    data = load_staged(staged, staging_dir)
    return _decoder.decode(data) if data else []


class _OpenFile:
    __slots__ = ("add", "finish", "piece")

    def __init__(self, piece: NewPiece, context: WriterContext, part_format: PartFormat) -> None:
        self.piece = piece
        self.add, self.finish = part_format.begin(piece.file, context.type_info)


@dataclass(eq=False, slots=True)
class PartFileWriter(SinkWriter):
    """Writes records into files of its own, and begins a new one where one gets too large.

    Files end between records, so that they can be joined without knowledge of records.
    """

    context: WriterContext
    base_path: Location
    files: PartFiles[Any]
    part_format: PartFormat
    bucket_of: Callable[[Any], str]
    max_size: int | None
    _open: dict[str, _OpenFile] = field(default_factory=dict, init=False)
    _begun: list[NewPiece] = field(default_factory=list, init=False)
    _parts: list[StagedPart] = field(default_factory=list, init=False)

    def write(self, value: Any) -> None:
        bucket = self.bucket_of(value)
        part = self._open.get(bucket)
        if part is None:
            part = self._begin(bucket)
        try:
            size = part.add(value)
        except OSError as error:
            name_path(error, part.piece.path)
            raise
        if self.max_size is not None and size > self.max_size:
            self._end(bucket)

    def stage(self) -> bytes:
        for bucket in list(self._open):
            self._end(bucket)
        data = msgspec.msgpack.encode(self._parts) if self._parts else b""
        return stage_bytes(data, self.context)

    def abort(self) -> None:
        self._open.clear()  # first: a bulk writer may still write when it is garbage-collected
        for piece in self._begun:
            piece.discard()

    def _begin(self, bucket: str) -> _OpenFile:
        check_bucket(bucket, self.base_path)
        piece = self.files.new_piece(f"{self.context.name}-{len(self._begun)}.piece")
        self._begun.append(piece)
        part = self._open[bucket] = _OpenFile(piece, self.context, self.part_format)
        return part

    def _end(self, bucket: str) -> None:
        part = self._open[bucket]
        with naming(part.piece.path):
            part.finish()
            size, crc = part.piece.finish()
        del self._open[bucket]
        self._parts.append(StagedPart(bucket, part.piece.path, size, crc))
