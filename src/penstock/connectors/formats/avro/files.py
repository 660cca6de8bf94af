"""Reads and writes Avro files."""
# ruff: noqa: D102 - the base classes document these methods

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.common.storage_url import Location
from penstock.connectors.contracts.source import CHUNK_RECORDS
from penstock.connectors.files.source import FileSource
from penstock.connectors.formats.avro import container
from penstock.connectors.formats.avro import schema as avro
from penstock.connectors.formats.avro.row_conversion import record_converter
from penstock.connectors.formats.avro.schema_checks import is_recursive
from penstock.connectors.formats.avro.validation import record_validator
from penstock.connectors.formats.input_file import InputFile
from penstock.connectors.formats.text_lines import StreamFormat
from penstock.connectors.formats.text_values import reject
from penstock.errors import UnreadableFileError

_DECODE_RECORDS = 8192
_DECODE_BYTES = 8 << 20
_SAMPLE_BYTES = 1 << 20
# Records without any bytes, of null fields only, could otherwise be without number.
_MAX_EMPTY_RECORDS = 1 << 20
# Enough for about two thousand records inside each other.
_RECURSION_LIMIT = 10_000
_BLOCK_BYTES = 1 << 16
_MARKER = 16


class AvroReaderFormat(StreamFormat):
    """The records of Avro files as dicts; their schema is resolved to the given one."""

    def __init__(self, schema: avro.AvroSchema) -> None:
        self._schema = schema

    @staticmethod
    def for_generic_record(schema: avro.AvroSchema) -> AvroReaderFormat:
        """Read records of this schema; files may be written with another version of it."""
        return AvroReaderFormat(avro.record_schema(schema))

    def type_info(self) -> avro.GenericRecordAvroTypeInfo:
        return avro.GenericRecordAvroTypeInfo(self._schema)

    def splittable(self, path: Path) -> bool:
        return True

    def bytes_per_record(self, file: InputFile) -> float:
        data, path, size = file.buffered, file.path, file.size
        header = container.read_header(data, path)
        try:
            block = next(container.blocks_in(data, path, header, 0, size, _SAMPLE_BYTES), None)
        except container.BlockTooLargeError:
            return _SAMPLE_BYTES
        return size if block is None else (len(block.data) + _MARKER) / max(1, block.records)

    def read(self, file: InputFile, start: int, end: int) -> Iterator[list[Any]]:
        file.check_length(end)
        header = container.read_header(file.buffered, file.path)
        waiting: list[container.Block] = []
        records = size = 0
        for block in _plain_blocks(file, header, start, end):
            waiting.append(block)
            records, size = records + block.records, size + len(block.data)
            if records >= _DECODE_RECORDS or size >= _DECODE_BYTES:
                yield from self._chunks(file.path, header, waiting)
                waiting, records, size = [], 0, 0
        if waiting:
            yield from self._chunks(file.path, header, waiting)

    def _chunks(
        self, path: Location, header: container.Header, blocks: Sequence[container.Block]
    ) -> Iterator[list[Any]]:
        records = self._decoded(header, blocks)
        while True:
            try:
                with _deep_recursion():
                    chunk = list(islice(records, CHUNK_RECORDS))
            except Exception as error:
                self._raise_with_record(path, header, blocks)
                raise UnreadableFileError(str(path), "its records", _text(error)) from error
            if not chunk:
                return
            yield chunk

    def _decoded(
        self, header: container.Header, blocks: Sequence[container.Block]
    ) -> Iterator[Any]:
        start = container.encode_header(header.schema, "null", header.marker)
        data = b"".join(container.encode_block(b.records, b.data, header.marker) for b in blocks)
        wanted = self._schema.parsed()
        library = avro.fastavro()
        # Compiled, the library has no limit: deeply nested records would overflow the stack of the
        # process. In Python they raise RecursionError.
        reader = library._read_py.reader if is_recursive(header.schema) else library.reader
        yield from reader(io.BytesIO(start + data), wanted)

    def _raise_with_record(
        self, path: Location, header: container.Header, blocks: Sequence[container.Block]
    ) -> None:
        """Raise an error that names the record that cannot be decoded."""
        for block in blocks:
            number = 0
            try:
                with _deep_recursion():
                    for _ in self._decoded(header, [block]):
                        number += 1
            except Exception as error:
                where = f"the block at byte {block.start}, record {number + 1}"
                raise UnreadableFileError(str(path), where, _text(error)) from error


@contextmanager
def _deep_recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _plain_blocks(
    file: InputFile, header: container.Header, start: int, end: int
) -> Iterator[container.Block]:
    """Yield the blocks that start in a range, decompressed."""
    limit, position = file.settings.max_block_bytes, start
    try:
        for block in container.blocks_in(file.buffered, file.path, header, start, end, limit):
            position = block.start
            yield _plain(file.path, header, block, limit)
    except container.BlockTooLargeError as error:
        what = f"a block of file {file.path}, at byte {position} or after it,"
        raise file.settings.block_too_large(what) from error


def _plain(
    path: Location, header: container.Header, block: container.Block, limit: int
) -> container.Block:
    try:
        data = container.decompress(header.codec, block.data, limit)
        if block.records > max(len(data), _MAX_EMPTY_RECORDS):
            reject(f"{block.records} records in {len(data)} bytes are impossible")
    except container.BlockTooLargeError:
        raise
    except ValueError as error:
        where = f"the block at byte {block.start}"
        raise UnreadableFileError(str(path), where, str(error)) from None
    return block._replace(data=data)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class AvroInputFormat:
    """Reads records of Avro files, for ``env.create_input(…)``."""

    def __init__(self, path: str | os.PathLike[str], schema: avro.AvroSchema) -> None:
        self._format = AvroReaderFormat.for_generic_record(schema)
        self._source = FileSource.for_record_stream_format(self._format, path).build()

    def get_produced_type(self) -> avro.GenericRecordAvroTypeInfo:
        """Return the type of the records."""
        return self._format.type_info()

    def source(self) -> FileSource:
        """Return the source that reads them."""
        return self._source


class AvroBulkWriters:
    """Creates writers of Avro files."""

    @staticmethod
    def for_generic_record(schema: avro.AvroSchema, codec: str = "null") -> BulkWriterFactory:
        """Write dicts, or named rows, of this schema.

        ``codec`` (ours) is null, deflate, snappy, zstandard, bzip2 or xz.
        """
        container.compressor(codec)
        return _Factory(avro.record_schema(schema), codec)


class _Factory(BulkWriterFactory):
    def __init__(self, schema: avro.AvroSchema, codec: str) -> None:
        self._schema = schema
        self._codec = codec

    def create(self, file: BinaryIO) -> BulkWriter:
        return _Writer(file, self._schema, self._codec)

    def merge(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        marker = os.urandom(_MARKER)
        file.write(container.encode_header(json.loads(self._schema.text), self._codec, marker))
        for path in pieces:
            with path.open("rb") as piece:
                header, size = container.read_header(piece, path), path.stat().st_size
                for block in container.blocks_in(piece, path, header, 0, size):
                    file.write(container.encode_block(block.records, block.data, marker))


class _Writer(BulkWriter):
    def __init__(self, file: BinaryIO, schema: avro.AvroSchema, codec: str) -> None:
        self._file = file
        self._marker = os.urandom(_MARKER)
        self._compress = container.compressor(codec)
        self._validate = record_validator(schema)
        self._to_record = record_converter(schema)
        # fastavro takes a timestamp without a zone for local time; here it is UTC.
        self._converts_all = "timestamp-" in schema.text
        self._schema = schema.parsed()
        self._write = avro.fastavro().schemaless_writer
        self._block = io.BytesIO()
        self._records = 0
        file.write(container.encode_header(json.loads(schema.text), codec, self._marker))

    def add_element(self, element: Any) -> None:
        record = element
        if self._converts_all or type(element) is not dict:
            record = self._to_record(element)
        self._validate(record)
        self._write(self._block, self._schema, record)
        self._records += 1
        if self._block.tell() >= _BLOCK_BYTES:
            self._end_block()

    def finish(self) -> None:
        if self._records:
            self._end_block()

    def _end_block(self) -> None:
        data = self._compress(self._block.getvalue())
        self._file.write(container.encode_block(self._records, data, self._marker))
        self._block, self._records = io.BytesIO(), 0
