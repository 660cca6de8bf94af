"""Files between penstock and Spark's own readers and writers; penstock's run in Spark's workers."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from penstock.common import Row, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, FileSource
from penstock.datastream.formats.avro import AvroBulkWriters, AvroInputFormat, AvroSchema
from penstock.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from penstock.datastream.formats.orc import OrcBulkWriters
from penstock.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from penstock.spark.session import open_session

pytestmark = pytest.mark.spark

ROWS = 500
FIELDS: list[tuple[str, Any]] = [
    ("n", Types.LONG()),
    ("text", Types.STRING()),
    ("at", Types.SQL_TIMESTAMP()),
    ("price", Types.BIG_DEC()),
    ("list", Types.BASIC_ARRAY(Types.INT())),
]
ROW = Types.ROW_NAMED([name for name, _ in FIELDS], [kind for _, kind in FIELDS])
QUERY = f"""
    select id as n, concat('é ', id) as text, timestamp'2024-02-29 01:02:03.000004' as at,
      cast(id / 4 as decimal(10, 2)) as price, array(cast(id as int), null) as list
    from range({ROWS})
"""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = open_session(
        {
            "spark.master": "local[2,4]",
            "spark.local.dir": str(tmp_path_factory.mktemp("local")),
            "spark.sql.session.timeZone": "UTC",
        }
    )
    yield session
    session.stop()


def expected(n: int) -> tuple[Any, ...]:
    at = datetime.datetime(2024, 2, 29, 1, 2, 3, 4)  # noqa: DTZ001
    return (n, f"é {n}", at, Decimal(n) / 4, [n, None])


def copied(source: FileSource, sink: FileSink, **options: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "files")
    stream.map(lambda record: record, **options).sink_to(sink)
    env.execute("copy")


def into(path: Path, writers: Any) -> FileSink:
    return FileSink.for_bulk_format(path, writers).build()


@pytest.mark.parametrize("timestamps", ["INT96", "TIMESTAMP_MICROS"])
def test_files_of_spark_are_read_and_written_for_spark(
    spark: SparkSession, tmp_path: Path, timestamps: str
) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", timestamps)
    spark.sql(QUERY).repartition(2).write.option("parquet.block.size", 4096).parquet(
        str(tmp_path / "in")
    )
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(ROW), tmp_path / "in")
    for name, writers in (
        ("parquet", ParquetBulkWriters.for_row_type(ROW)),
        ("orc", OrcBulkWriters.for_row_type(ROW)),
    ):
        copied(source.build(), into(tmp_path / name, writers), output_type=ROW)
        frame = spark.read.option("recursiveFileLookup", "true").format(name)
        found = frame.load(str(tmp_path / name)).select(*ROW.field_names).collect()
        assert sorted(map(tuple, found)) == [expected(n) for n in range(ROWS)]


def test_csv_and_avro_are_read_and_written_in_workers(spark: SparkSession, tmp_path: Path) -> None:
    builder = CsvSchema.builder().add_number_column("n").add_string_column("text")
    schema = builder.set_use_header().set_strict_headers().build()
    texts = """concat('"', id, ', x')"""
    frame = spark.sql(f"select id as n, {texts} as text from range({ROWS})")
    frame.write.option("header", "true").option("escape", '"').csv(str(tmp_path / "in"))
    fields = [{"name": "n", "type": "long"}, {"name": "text", "type": "string"}]
    avro = AvroSchema(json.dumps({"type": "record", "name": "R", "fields": fields}))
    source = FileSource.for_record_stream_format(
        CsvReaderFormat.for_schema(schema), tmp_path / "in"
    )
    writers = AvroBulkWriters.for_generic_record(avro, codec="zstandard")
    copied(source.build(), into(tmp_path / "avro", writers))
    parts = [path for path in (tmp_path / "avro").glob("[!.]*/*") if path.is_file()]
    records = []
    for path in parts:
        with path.open("rb") as file:
            records += list(fastavro.reader(file))
    wanted = [{"n": n, "text": f'"{n}, x'} for n in range(ROWS)]
    assert sorted(records, key=lambda record: record["n"]) == wanted

    back = AvroInputFormat(tmp_path / "avro", avro).source()
    kind = schema.row_type()
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    stream = env.from_source(back, WatermarkStrategy.no_watermarks(), "avro")
    rows = stream.map(lambda record: Row(**record), kind)
    rows.sink_to(into(tmp_path / "csv", CsvBulkWriters.for_schema(schema)))
    env.execute("back")
    reader = spark.read.option("header", "true").option("escape", '"').schema("n long, text string")
    found = reader.option("recursiveFileLookup", "true").csv(str(tmp_path / "csv")).collect()
    assert sorted((row.n, row.text) for row in found) == [(r["n"], r["text"]) for r in wanted]
