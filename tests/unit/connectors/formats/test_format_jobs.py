"""Jobs that read and write files of a format stay exact when they fail inside a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Row, Types, WatermarkStrategy
from penstock.common.serialization import BulkWriterFactory
from penstock.connectors.files import enumerator as file_enumerator
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink, FileSource
from penstock.datastream.formats.avro import (
    AvroBulkWriters,
    AvroReaderFormat,
    AvroSchema,
    GenericRecordAvroTypeInfo,
)
from penstock.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from penstock.datastream.formats.json import (
    JsonBulkWriters,
    JsonReaderFormat,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from penstock.datastream.formats.parquet import (
    AvroParquetReaders,
    AvroParquetWriters,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
)
from penstock.errors import StepError, UnreadableFileError
from penstock.testing import ScriptedFailures
from tests.unit.support import environment

RECORDS = 400
VALUES = [(number, f"text {number} é") for number in range(RECORDS)]
ROW = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])
FIELDS = [{"name": "n", "type": "long"}, {"name": "text", "type": "string"}]
AVRO = AvroSchema(json.dumps({"type": "record", "name": "R", "fields": FIELDS}))
CSV = (
    CsvSchema.builder()
    .add_number_column("n")
    .add_string_column("text")
    .set_use_header()
    .set_strict_headers()
    .build()
)

Case = tuple[Callable[[Path], None], Any, BulkWriterFactory, Any, Callable[[Path], list[Any]]]


def write_csv(path: Path) -> None:
    path.write_text("n,text\n" + "".join(f"{n},{text}\n" for n, text in VALUES))


def write_json(path: Path) -> None:
    path.write_text("".join(json.dumps({"n": n, "text": text}) + "\n" for n, text in VALUES))


def write_parquet(path: Path) -> None:
    numbers, texts = zip(*VALUES, strict=True)
    pq.write_table(pa.table({"n": numbers, "text": texts}), path, row_group_size=10)


def write_avro(path: Path) -> None:
    records = [{"n": n, "text": text} for n, text in VALUES]
    with path.open("wb") as file:
        fastavro.writer(file, json.loads(str(AVRO)), records, codec="snappy", sync_interval=150)


def read_csv(path: Path) -> list[Any]:
    header, *lines = path.read_text().splitlines()
    assert header == "n,text"
    return [(int(n), text.strip('"')) for n, text in (line.split(",") for line in lines)]


def read_json(path: Path) -> list[Any]:
    objects = map(json.loads, path.read_text().splitlines())
    return [(each["n"], each["text"]) for each in objects]


def read_parquet(path: Path) -> list[Any]:
    return [(each["n"], each["text"]) for each in pq.read_table(path).to_pylist()]


def read_avro(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return [(each["n"], each["text"]) for each in fastavro.reader(file)]


def cases() -> dict[str, Case]:
    reads = JsonRowDeserializationSchema.builder().type_info(ROW).build()
    writes = JsonRowSerializationSchema.builder().with_type_info(ROW).build()
    record = GenericRecordAvroTypeInfo(AVRO)
    return {
        "csv": (
            write_csv,
            CsvReaderFormat.for_schema(CSV),
            CsvBulkWriters.for_schema(CSV),
            ROW,
            read_csv,
        ),
        "json": (
            write_json,
            JsonReaderFormat.for_schema(reads),
            JsonBulkWriters.for_schema(writes),
            ROW,
            read_json,
        ),
        "parquet": (
            write_parquet,
            ParquetColumnarRowInputFormat(ROW),
            ParquetBulkWriters.for_row_type(ROW),
            ROW,
            read_parquet,
        ),
        "avro": (
            write_avro,
            AvroReaderFormat.for_generic_record(AVRO),
            AvroBulkWriters.for_generic_record(AVRO, codec="deflate"),
            record,
            read_avro,
        ),
        "avro in parquet": (
            write_parquet,
            AvroParquetReaders.for_generic_record(AVRO),
            AvroParquetWriters.for_generic_record(AVRO),
            record,
            read_parquet,
        ),
    }


def source_of(reader: Any, path: Path) -> FileSource:
    begin = (
        FileSource.for_bulk_file_format
        if isinstance(reader, ParquetColumnarRowInputFormat)
        else FileSource.for_record_stream_format
    )
    return begin(reader, path).build()


@pytest.mark.parametrize("name", list(cases()))
def test_a_job_that_fails_in_the_middle_of_a_file_stays_exact(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_enumerator, "_MIN_SPLIT_BYTES", 64)
    write, reader, writers, kind, read = cases()[name]
    write(tmp_path / "in")
    env = environment(
        2,
        execution__checkpointing__dir=str(tmp_path / "checkpoints"),
        penstock__checkpoint__records="40",
        restart_strategy__type="fixed-delay",
        restart_strategy__fixed_delay__attempts="20",
        restart_strategy__fixed_delay__delay="1 ms",
        penstock__micro_batch__max_records="20",
        penstock__micro_batch__initial_records="20",
    )
    records = env.from_source(
        source_of(reader, tmp_path / "in"), WatermarkStrategy.no_watermarks(), "files"
    )
    sink = FileSink.for_bulk_format(tmp_path / "out", writers)
    sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    (
        records.map(ScriptedFailures(tmp_path, on=[70, 180, 290]), kind)
        .key_by(lambda record: record["n"] % 7, Types.LONG())
        .map(lambda record: record, kind)
        .sink_to(sink.build())
    )
    env.execute("formats")
    parts = [path for path in (tmp_path / "out").iterdir() if path.is_file()]
    assert sorted(value for part in parts for value in read(part)) == VALUES
    tried = (tmp_path / "scripted-failures").stat().st_size
    assert tried >= RECORDS + 3, "it failed, and went back"


def test_a_bad_line_fails_the_job_and_the_job_resumes_once_it_is_corrected(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("n,text\n1,a\ntwo,b\n")
    env = environment(2)
    source = source_of(CsvReaderFormat.for_schema(CSV), path)
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "files")
    with (
        pytest.raises((UnreadableFileError, StepError)) as error,
        rows.execute_and_collect() as all_,
    ):
        list(all_)
    assert f"file {path} cannot be read at line 3: field 'n': 'two' is no whole" in str(error.value)
    path.write_text("n,text\n1,a\n2,b\n")
    env = environment(2)
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "files")
    with rows.execute_and_collect() as records:
        assert list(records) == [Row(n=1, text="a"), Row(n=2, text="b")]
