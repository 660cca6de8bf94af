"""A file that changes while it is read fails the job, with the file's name."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Types
from penstock.connectors.contracts.input_settings import InputSettings
from penstock.connectors.contracts.source import EnumeratorContext, SourceEnumerator, SplitRange
from penstock.connectors.files import enumerator as file_enumerator
from penstock.connectors.files.source import FileSource
from penstock.connectors.formats import line_files
from penstock.connectors.formats.reader_format import ReaderFormat
from penstock.connectors.formats.text_lines import StreamFormat
from penstock.datastream.formats.avro import AvroReaderFormat, AvroSchema
from penstock.datastream.formats.csv import CsvReaderFormat, CsvSchema
from penstock.datastream.formats.json import JsonReaderFormat, JsonRowDeserializationSchema
from penstock.datastream.formats.parquet import ParquetColumnarRowInputFormat
from penstock.errors import ChangedFileError

RECORDS = 2000
NUMBER = Types.ROW_NAMED(["n"], [Types.LONG()])
AVRO = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
LINES = StreamFormat.text_line_format()


def write_lines(path: Path, first: int) -> None:
    path.write_text("".join(f"{n}\n" for n in range(first, first + RECORDS)))


def write_objects(path: Path, first: int) -> None:
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(first, first + RECORDS)))


def write_avro(path: Path, first: int) -> None:
    with path.open("wb") as file:
        records = [{"n": n} for n in range(first, first + RECORDS)]
        fastavro.writer(file, AVRO, records, sync_interval=500)


def write_parquet(path: Path, first: int) -> None:
    pq.write_table(pa.table({"n": range(first, first + RECORDS)}), path, row_group_size=100)


FORMATS: dict[str, tuple[ReaderFormat, Callable[[Path, int], None]]] = {
    "text": (LINES, write_lines),
    "csv": (
        CsvReaderFormat.for_schema(CsvSchema.builder().add_number_column("n").build()),
        write_lines,
    ),
    "json": (
        JsonReaderFormat.for_schema(
            JsonRowDeserializationSchema.builder().type_info(NUMBER).build()
        ),
        write_objects,
    ),
    "avro": (AvroReaderFormat.for_generic_record(AvroSchema(json.dumps(AVRO))), write_avro),
    "parquet": (ParquetColumnarRowInputFormat(NUMBER), write_parquet),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_enumerator, "_MIN_SPLIT_BYTES", 10)
    monkeypatch.setattr(line_files, "_BLOCK_BYTES", 1000)


def source_of(path: Path, reader: ReaderFormat = LINES) -> FileSource:
    return FileSource.for_record_stream_format(reader, path).build()  # type: ignore[arg-type]


def opened(source: FileSource) -> SourceEnumerator:
    return source.enumerator(EnumeratorContext(2, Path(), clock=lambda: 0.0, wake=lambda: None))


def plan(enumerator: SourceEnumerator, records: int) -> list[SplitRange]:
    return list(itertools.chain.from_iterable(enumerator.plan(records)))


def read(source: FileSource, ranges: list[SplitRange]) -> list[Any]:
    return [r for part in ranges for chunk in source.read_lists(part) for r in chunk]


def restored(source: FileSource, taken: SourceEnumerator) -> SourceEnumerator:
    positions, state = taken.positions(), taken.snapshot_state()
    again = opened(source)
    if state:
        again.restore_state(state)
    again.start(positions)
    return again


def begun(path: Path) -> tuple[FileSource, SourceEnumerator]:
    """A source that has read the beginning of a file."""
    write_lines(path, 0)
    source = source_of(path)
    enumerator = opened(source)
    enumerator.start({})
    assert read(source, plan(enumerator, 500))[:2] == ["0", "1"]
    return source, enumerator


def test_a_text_file_truncated_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_lines(path, 0)
    source = source_of(path)
    enumerator = opened(source)
    enumerator.start({})
    (whole,) = enumerator.plan(10**6)[:1]
    chunks = source.read_lists(whole[0])
    assert next(chunks)[0] == "0"
    os.truncate(path, 1500)
    with pytest.raises(ChangedFileError, match=r"a changed .* it had \d+ bytes and has 1500"):
        list(chunks)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("is_last", [False, True])
def test_a_file_that_is_extended_within_a_range_is_an_error(
    tmp_path: Path, name: str, is_last: bool
) -> None:
    reader, write = FORMATS[name]
    path = tmp_path / "input"
    write(path, 0)
    source = source_of(path, reader)
    enumerator = opened(source)
    enumerator.start({})
    ranges = plan(enumerator, 10**6)
    chunks = source.read_lists(ranges[-1 if is_last else 0])
    next(chunks)
    with path.open("ab") as file:
        file.write(b"\n")
    with pytest.raises(ChangedFileError, match="input changed"):
        list(chunks)


def test_a_file_that_grows_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a"
    source, enumerator = begun(path)
    with path.open("a") as file:
        file.write("more\n")
    with pytest.raises(ChangedFileError, match="files must be complete when they appear"):
        read(source, plan(enumerator, 10**6))


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_replaced_between_two_ranges_is_an_error(tmp_path: Path, name: str) -> None:
    reader, write = FORMATS[name]
    path = tmp_path / "input"
    write(path, 1000)
    source = source_of(path, reader)
    enumerator = opened(source)
    enumerator.start({})
    assert 0 < len(read(source, plan(enumerator, 500))) < RECORDS
    before = path.stat()
    write(tmp_path / ".new", 5000)
    os.utime(tmp_path / ".new", ns=(before.st_atime_ns, before.st_mtime_ns))
    (tmp_path / ".new").replace(path)
    with pytest.raises(ChangedFileError, match="input changed after the job began to read it"):
        read(source, plan(enumerator, 10**6))


def test_a_file_written_again_with_the_same_size_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a"
    source, enumerator = begun(path)
    size = path.stat().st_size
    path.write_text("x\n" * (size // 2))
    os.utime(path, ns=(0, 1))
    assert path.stat().st_size == size
    with pytest.raises(ChangedFileError, match="its modification time is another"):
        read(source, plan(enumerator, 10**6))


def test_a_file_replaced_while_a_range_is_read_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_lines(path, 0)
    source = source_of(path)
    enumerator = opened(source)
    enumerator.start({})
    (whole,) = enumerator.plan(10**6)[:1]
    chunks: Iterator[list[Any]] = source.read_lists(whole[0])
    first = next(chunks)
    (tmp_path / ".new").write_text("new\n")
    (tmp_path / ".new").replace(path)
    rest = list(itertools.chain.from_iterable(chunks))
    assert [*first, *rest] == [str(n) for n in range(len(first) + len(rest))]


def test_the_change_is_reported_rather_than_what_it_makes_of_the_records(tmp_path: Path) -> None:
    reader, write = FORMATS["json"]
    path = tmp_path / "a"
    write(path, 0)
    source = source_of(path, reader)
    enumerator = opened(source)
    enumerator.start({})
    chunks = source.read_lists(enumerator.plan(10**6)[0][0])
    next(chunks)
    path.write_text("no object\n" * 10_000)
    with pytest.raises(ChangedFileError):
        list(chunks)


def test_a_file_that_is_not_begun_may_still_change(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("tw")
    source = source_of(tmp_path)
    enumerator = opened(source)
    enumerator.start({})
    again = restored(source, enumerator)
    (tmp_path / "b").write_text("two\nthree\n")
    assert read(source, plan(enumerator, 100)) == ["one", "two", "three"]
    assert read(source, plan(again, 100)) == ["one", "two", "three"]


def test_a_restored_job_finds_a_replaced_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    source, enumerator = begun(path)
    write_lines(tmp_path / ".new", 5000)
    (tmp_path / ".new").replace(path)
    with pytest.raises(ChangedFileError, match="changed-files to accept"):
        restored(source, enumerator)


def test_a_restored_job_finds_a_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    source, enumerator = begun(path)
    positions = enumerator.positions()
    os.truncate(path, positions[str(path)])
    with pytest.raises(ChangedFileError):
        restored(source, enumerator)
    # A checkpoint of penstock 0.1.0 does not know what the file was.
    with pytest.raises(ChangedFileError, match=r"it has \d+ bytes, \d+ were read"):
        opened(source).start(positions)


def test_a_changed_file_can_be_accepted(tmp_path: Path) -> None:
    path = tmp_path / "a"
    source, enumerator = begun(path)
    accepting = source.with_settings(InputSettings(accepts_changed_files=True))
    position = enumerator.positions()[str(path)]
    write_lines(path, 5000)
    with path.open() as file:
        file.seek(position)
        new = file.read().splitlines()
    again = restored(accepting, enumerator)
    assert read(accepting, plan(again, 10**6)) == new[1:]
    os.truncate(path, position - 1)
    assert plan(restored(accepting, enumerator), 10**6) == []


def test_a_restored_job_reads_a_copy_of_the_directory(tmp_path: Path) -> None:
    path = tmp_path / "in" / "a"
    path.parent.mkdir()
    source, enumerator = begun(path)
    rest = read(source, plan(enumerator, 10**6))
    source, enumerator = begun(path)
    shutil.copytree(path.parent, tmp_path / "copy")
    shutil.rmtree(path.parent)
    (tmp_path / "copy").rename(path.parent)
    exact = path.stat().st_mtime_ns
    for unit in (1, 1000, 10**9):  # not every tool keeps all digits
        os.utime(path, ns=(0, exact - exact % unit))
        assert read(source, plan(restored(source, enumerator), 10**6)) == rest
    os.utime(path, ns=(0, exact + 1))
    with pytest.raises(ChangedFileError):
        restored(source, enumerator)


def test_a_position_of_an_older_version_is_still_read(tmp_path: Path) -> None:
    source, enumerator = begun(tmp_path / "a")
    again = opened(source)
    again.start(enumerator.positions())
    assert read(source, plan(again, 10**6)) == read(source, plan(enumerator, 10**6))
