"""Limits of records and blocks: a small or broken input must not fill the memory of a task."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import socket
import subprocess
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.acknowledging.received_log import ReceivedLog
from penstock.connectors.contracts.input_settings import InputSettings
from penstock.connectors.contracts.source import EnumeratorContext
from penstock.connectors.formats import line_files
from penstock.connectors.formats.avro import container
from penstock.connectors.formats.input_file import InputFile
from penstock.connectors.formats.reader_format import ReaderFormat
from penstock.connectors.formats.text_lines import StreamFormat
from penstock.connectors.kafka.source.deserialization import checked_batch
from penstock.connectors.socket.source import SocketSource
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.formats.avro import AvroReaderFormat, AvroSchema
from penstock.datastream.formats.csv import CsvReaderFormat, CsvSchema
from penstock.datastream.formats.json import JsonReaderFormat, JsonRowDeserializationSchema
from penstock.errors import InputTooLargeError, UnreadableFileError
from tests.unit.connectors.formats.reading import read_lists
from tests.unit.support import environment

MB = 1 << 20
SMALL = InputSettings(max_record_bytes=1000, max_block_bytes=2 * MB)
LINES = StreamFormat.text_line_format()
TEXT = Types.ROW_NAMED(["s"], [Types.STRING()])
CSV = CsvReaderFormat.for_schema(CsvSchema.builder().add_string_column("s").build())
HEADED = CsvReaderFormat.for_schema(
    CsvSchema.builder().add_string_column("s").set_use_header().build()
)
JSON = JsonReaderFormat.for_schema(JsonRowDeserializationSchema.builder().type_info(TEXT).build())
RECORD: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "s", "type": "string"}],
}
MARKER = b"m" * 16


@contextmanager
def at_most(megabytes: int) -> Iterator[None]:
    """Check how much memory is allocated at once."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < megabytes * MB


def read(reader: ReaderFormat, path: Path, settings: InputSettings = SMALL) -> list[Any]:
    chunks = read_lists(reader, path, 0, path.stat().st_size, settings)
    return [record for chunk in chunks for record in chunk]


@pytest.mark.parametrize("reader", [LINES, CSV, HEADED, JSON], ids=["text", "csv", "head", "json"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_line_without_end_is_not_read_into_memory(
    tmp_path: Path, reader: ReaderFormat, suffix: str
) -> None:
    path = tmp_path / f"long{suffix}"
    data = b"\n" + b"x" * (30 * MB)
    path.write_bytes(gzip.compress(data, 1) if suffix else data)
    del data
    with at_most(12), pytest.raises(InputTooLargeError, match="max-record-size") as raised:
        read(reader, path, InputSettings(max_record_bytes=MB))
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(("length", "fits"), [(1000, True), (1001, False)])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
def test_the_limit_of_a_line_is_exact(tmp_path: Path, length: int, fits: bool, end: str) -> None:
    path = tmp_path / "lines"
    line = "x" * length
    path.write_bytes(f"one\ntwo\n{line}{end}".encode())
    if fits:
        assert read(LINES, path) == ["one", "two", line]
    else:
        with pytest.raises(InputTooLargeError, match="the line at byte 8 of file"):
            read(LINES, path)


def test_a_line_that_ends_after_its_range_is_limited_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "_TAIL_BYTES", 100)
    path = tmp_path / "lines"
    path.write_bytes(b"one\n" + b"x" * 5000 + b"\n")
    with pytest.raises(InputTooLargeError, match="the line at byte 4 of file"):
        read_lists(LINES, path, 0, 10, SMALL)


def test_a_file_that_is_read_as_a_whole_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "wide.gz"
    path.write_bytes(gzip.compress(("x\n" * 10 * MB).encode("utf-16"), 1))
    with at_most(20), pytest.raises(InputTooLargeError, match="max-block-size"):
        read(StreamFormat.text_line_format("UTF-16"), path)


def test_a_quote_that_is_never_closed_does_not_join_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "quotes.csv"
    path.write_bytes(b'"open\n' + b"line\n" * (2 * MB))
    with at_most(20), pytest.raises(InputTooLargeError, match="the quotes at byte 0 of file"):
        read(CSV, path)


def avro_file(path: Path, codec: str, data: bytes, records: int, schema: Any = RECORD) -> Path:
    """A file with one block, whatever it says."""
    header = container.encode_header(schema, codec, MARKER)
    path.write_bytes(header + container.encode_block(records, data, MARKER))
    return path


def reader_of(schema: Any = RECORD) -> AvroReaderFormat:
    return AvroReaderFormat.for_generic_record(AvroSchema(json.dumps(schema)))


def zeros(megabytes: int) -> bytes:
    """A string of zeros, as Avro encodes it."""
    return container._number(megabytes * MB) + bytes(megabytes * MB)


BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.compress(data, 9, -15),
    "snappy": container.compressor("snappy"),
    "zstandard": container.compressor("zstandard"),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


@pytest.mark.parametrize("codec", BOMBS)
def test_an_avro_block_is_not_decompressed_beyond_the_limit(tmp_path: Path, codec: str) -> None:
    path = avro_file(tmp_path / "bomb.avro", codec, BOMBS[codec](zeros(24)), 1)
    with at_most(16), pytest.raises(InputTooLargeError, match="max-block-size") as raised:
        read(reader_of(), path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("codec", BOMBS)
def test_an_avro_block_at_the_limit_is_read(tmp_path: Path, codec: str) -> None:
    data = zeros(1)
    path = avro_file(tmp_path / "good.avro", codec, BOMBS[codec](data), 1)
    (record,) = read(reader_of(), path, InputSettings(max_block_bytes=len(data)))
    assert len(record["s"]) == MB
    if codec != "null":
        with pytest.raises(InputTooLargeError):
            read(reader_of(), path, InputSettings(max_block_bytes=len(data) - 1))


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "zstandard"])
def test_an_incomplete_avro_block_is_an_error(tmp_path: Path, codec: str) -> None:
    path = avro_file(tmp_path / "half.avro", codec, BOMBS[codec](b"\x02x" * 5000)[:-9], 5000)
    with pytest.raises(UnreadableFileError):
        read(reader_of(), path)


def test_a_snappy_block_that_claims_a_great_length_allocates_nothing(tmp_path: Path) -> None:
    claim = b"\xff\xff\xff\xff\x0f" + b"\x00" * 8
    path = avro_file(tmp_path / "claim.avro", "snappy", claim, 1)
    with at_most(2), pytest.raises(InputTooLargeError):
        read(reader_of(), path)


def test_records_without_bytes_cannot_be_without_number(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]}
    path = avro_file(tmp_path / "empty.avro", "null", b"", 50_000_000, schema)
    assert path.stat().st_size < 150
    with at_most(2), pytest.raises(UnreadableFileError, match="50000000 records in 0 bytes"):
        read(reader_of(schema), path)
    avro_file(path, "null", b"", 100_000, schema)
    assert read(reader_of(schema), path) == [{"n": None}] * 100_000


def test_an_array_of_items_without_bytes_is_refused(tmp_path: Path) -> None:
    field = {"name": "a", "type": {"type": "array", "items": "null"}}
    schema = {"type": "record", "name": "R", "fields": [field]}
    count = container._number(30_000_000)
    path = avro_file(tmp_path / "array.avro", "null", count + b"\x00", 1, schema)
    with at_most(2), pytest.raises(UnreadableFileError, match="array whose items take no bytes"):
        read(reader_of(schema), path)


LINKED: dict[str, Any] = {
    "type": "record",
    "name": "my.R",
    "fields": [{"name": "n", "type": "long"}, {"name": "next", "type": ["null", "R"]}],
}


@pytest.mark.crash
def test_records_inside_each_other_do_not_kill_the_process(tmp_path: Path) -> None:
    path = avro_file(tmp_path / "deep.avro", "null", b"\x02\x02" * 200_000, 1, LINKED)
    program = f"""
from pathlib import Path
from penstock.errors import UnreadableFileError
from tests.unit.connectors.test_input_limits import LINKED, read, reader_of
try:
    read(reader_of(LINKED), Path({str(path)!r}))
except UnreadableFileError as error:
    print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "RecursionError" in run.stdout


def test_records_inside_each_other_are_read(tmp_path: Path) -> None:
    data = b"\x02\x02" * 1000 + b"\x04\x00"
    path = avro_file(tmp_path / "chain.avro", "null", data, 1, LINKED)
    limit = sys.getrecursionlimit()
    (record,) = read(reader_of(LINKED), path)
    assert sys.getrecursionlimit() == limit
    depth = 0
    while record["next"] is not None:
        record, depth = record["next"], depth + 1
    assert (depth, record["n"]) == (1000, 2)


@pytest.mark.parametrize("length", [2**40, 2**62, -1])
def test_a_header_that_claims_a_great_length_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "header.avro"
    path.write_bytes(b"Obj\x01" + container._number(1) + container._number(length) + b"x")
    with at_most(2), pytest.raises(UnreadableFileError, match="its header"):
        read(reader_of(), path)


def test_blocks_of_few_large_records_are_not_collected(tmp_path: Path) -> None:
    path = tmp_path / "large.avro"
    with path.open("wb") as file:
        fastavro.writer(file, RECORD, ({"s": "x" * MB} for _ in range(60)), codec="deflate")
    reader = reader_of()
    with at_most(40), InputFile(path) as input_file:
        chunks = reader.read(input_file, 0, path.stat().st_size)
        assert sum(map(len, chunks)) == 60


def test_a_line_from_a_socket_is_limited(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = SocketSource("127.0.0.1", server.getsockname()[1]).with_settings(SMALL)
        woken = threading.Event()
        enumerator = source.enumerator(EnumeratorContext(1, tmp_path, lambda: 0.0, woken.set))
        enumerator.start({})
        client, _ = server.accept()
        with client:
            client.sendall(b"x" * 1001)
            assert woken.wait(10)
        with pytest.raises(InputTooLargeError, match=r"a line from 127\.0\.0\.1"):
            enumerator.plan(10)
        enumerator.close()


def test_a_message_of_a_broker_is_limited(tmp_path: Path) -> None:
    log = ReceivedLog(tmp_path / "log", SMALL)
    log.append([b"x" * 1000])
    with pytest.raises(InputTooLargeError, match="a message of 1001 bytes, which begins with b'xx"):
        log.append([b"small", b"x" * 1001])
    assert log.end == 1


def test_a_record_of_kafka_is_limited() -> None:
    good = pa.record_batch({"key": [b"k"] * 3, "value": pa.array([b"x" * 1000] * 3)})
    assert checked_batch(good, SMALL, "orders") is good
    bad = pa.record_batch({"value": pa.array([b"x", None, b"x" * 1001])})
    with pytest.raises(InputTooLargeError, match="a value of 1001 bytes from topic orders"):
        checked_batch(bad, SMALL, "orders")


def test_the_limits_of_a_job_are_configured(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("short\n" + "x" * 5000 + "\n")
    env = environment(1, penstock__source__max_record_size="4 kb")
    source = FileSource.for_record_stream_format(LINES, tmp_path / "in").build()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "in").print()
    with pytest.raises(InputTooLargeError, match="more than 4096 bytes"):
        env.execute()
