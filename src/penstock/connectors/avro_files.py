"""Files of Avro, read and written."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.connectors.avro_codecs import compressor, decompress
from penstock.connectors.avro_container import (
    Block,
    Header,
    blocks_in,
    encode_block,
    encode_header,
    read_header,
)
from penstock.connectors.avro_fit import checker
from penstock.connectors.avro_rows import record_maker
from penstock.connectors.avro_schema import (
    AvroSchema,
    GenericRecordAvroTypeInfo,
    fastavro,
    record_schema,
)
from penstock.connectors.files import FileSource
from penstock.connectors.source import CHUNK_RECORDS
from penstock.connectors.text_lines import StreamFormat
from penstock.errors import UnreadableFileError

__all__ = ["AvroBulkWriters", "AvroInputFormat", "AvroReaderFormat"]

_DECODED_AT_ONCE = 8192
_BLOCK_BYTES = 1 << 16
_MARKER = 16


class AvroReaderFormat(StreamFormat):
    """The records of Avro files as dicts, read with a schema that theirs can be resolved to."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> AvroReaderFormat:
        """Read records of this schema; files may have been written with another version of it."""
        return AvroReaderFormat(record_schema(schema))

    def type_info(self) -> GenericRecordAvroTypeInfo:
        """Return the type of such records."""
        return GenericRecordAvroTypeInfo(self._schema)

    def splittable(self, path: Path) -> bool:
        """Tell that files may be cut."""
        return True

    def bytes_per_record(self, path: Path) -> float:
        """Look at the first block."""
        with path.open("rb") as file:
            header = read_header(file, path)
            size = path.stat().st_size
            block = next(blocks_in(file, path, header, 0, size), None)
        return size if block is None else (len(block.data) + _MARKER) / max(1, block.records)

    def read(self, path: Path, start: int, end: int) -> Iterator[list[Any]]:
        """Give the records in lists."""
        with path.open("rb") as file:
            header = read_header(file, path)
            waiting: list[Block] = []
            for block in blocks_in(file, path, header, start, end):
                waiting.append(block)
                if sum(each.records for each in waiting) >= _DECODED_AT_ONCE:
                    yield from self._chunks(path, header, waiting)
                    waiting = []
            if waiting:
                yield from self._chunks(path, header, waiting)

    def _chunks(self, path: Path, header: Header, blocks: Sequence[Block]) -> Iterator[list[Any]]:
        plain = [_plain(path, header, block) for block in blocks]
        try:
            records = list(self._decoded(header, plain))
        except Exception as error:
            self._fail(path, header, plain)
            raise UnreadableFileError(str(path), "its records", _said(error)) from error
        for first in range(0, len(records), CHUNK_RECORDS):
            yield records[first : first + CHUNK_RECORDS]

    def _decoded(self, header: Header, blocks: Sequence[Block]) -> Iterator[Any]:
        start = encode_header(header.schema, "null", header.marker)
        data = b"".join(encode_block(b.records, b.data, header.marker) for b in blocks)
        wanted = self._schema.parsed()
        yield from fastavro().reader(io.BytesIO(start + data), wanted)

    def _fail(self, path: Path, header: Header, blocks: Sequence[Block]) -> None:
        """Name the record at fault."""
        for block in blocks:
            number = 0
            try:
                for _ in self._decoded(header, [block]):
                    number += 1
            except Exception as error:
                where = f"the block at byte {block.start}, record {number + 1}"
                raise UnreadableFileError(str(path), where, _said(error)) from error


def _plain(path: Path, header: Header, block: Block) -> Block:
    try:
        return block._replace(data=decompress(header.codec, block.data))
    except ValueError as error:
        where = f"the block at byte {block.start}"
        raise UnreadableFileError(str(path), where, str(error)) from None


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class AvroInputFormat:
    """The records of Avro files, for ``env.create_input(…)``."""

    def __init__(self, path: str | os.PathLike[str], schema: AvroSchema) -> None:
        self._format = AvroReaderFormat.for_generic_record(schema)
        self._source = FileSource.for_record_stream_format(self._format, path).build()

    def get_produced_type(self) -> GenericRecordAvroTypeInfo:
        """Return the type of the records."""
        return self._format.type_info()

    def source(self) -> FileSource:
        """Return the source that reads them."""
        return self._source


class AvroBulkWriters:
    """Makes writers of Avro files."""

    @staticmethod
    def for_generic_record(schema: AvroSchema, codec: str = "null") -> BulkWriterFactory:
        """Write dicts, or named rows, of this schema.

        ``codec`` (ours) is null, deflate, snappy, zstandard, bzip2 or xz.
        """
        compressor(codec)
        return _Factory(record_schema(schema), codec)


class _Factory(BulkWriterFactory):
    def __init__(self, schema: AvroSchema, codec: str) -> None:
        self._schema = schema
        self._codec = codec

    def create(self, file: BinaryIO) -> BulkWriter:
        return _Writer(file, self._schema, self._codec)

    def merge(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        marker = os.urandom(_MARKER)
        file.write(encode_header(json.loads(self._schema.text), self._codec, marker))
        for path in pieces:
            with path.open("rb") as piece:
                header, size = read_header(piece, path), path.stat().st_size
                for block in blocks_in(piece, path, header, 0, size):
                    file.write(encode_block(block.records, block.data, marker))


class _Writer(BulkWriter):
    def __init__(self, file: BinaryIO, schema: AvroSchema, codec: str) -> None:
        self._file = file
        self._marker = os.urandom(_MARKER)
        self._compress = compressor(codec)
        self._check = checker(schema)
        self._record_of = record_maker(schema)
        # To fastavro a time without a zone is one of this machine's zone; here it is one of UTC.
        self._remakes = "timestamp-" in schema.text
        self._schema = schema.parsed()
        self._write = fastavro().schemaless_writer
        self._block = io.BytesIO()
        self._records = 0
        file.write(encode_header(json.loads(schema.text), codec, self._marker))

    def add_element(self, element: Any) -> None:
        record = element
        if self._remakes or type(element) is not dict:
            record = self._record_of(element)
        self._check(record)
        self._write(self._block, self._schema, record)
        self._records += 1
        if self._block.tell() >= _BLOCK_BYTES:
            self._end_block()

    def finish(self) -> None:
        if self._records:
            self._end_block()

    def _end_block(self) -> None:
        data = self._compress(self._block.getvalue())
        self._file.write(encode_block(self._records, data, self._marker))
        self._block, self._records = io.BytesIO(), 0
