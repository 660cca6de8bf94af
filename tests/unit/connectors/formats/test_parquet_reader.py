import datetime
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Configuration, Instant, Row, Types
from penstock.connectors.formats.input_file import InputFile
from penstock.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from penstock.errors import ChangedFileError, InvalidJobError, UnreadableFileError
from penstock.table import DataTypes
from tests.unit.connectors.formats.reading import read_chunks, read_lists

WORDS = DataTypes.ROW(
    [DataTypes.FIELD("word", DataTypes.STRING()), DataTypes.FIELD("n", DataTypes.BIGINT())]
)


def read(row_type: Any, path: Path, *cuts: int, **options: Any) -> list[Any]:
    reader = ParquetColumnarRowInputFormat(row_type, **options)
    places = [0, *cuts, path.stat().st_size]
    chunks = [read_lists(reader, path, a, b) for a, b in itertools.pairwise(places)]
    return list(itertools.chain.from_iterable(itertools.chain.from_iterable(chunks)))


def table(path: Path, rows_per_group: int | None = None, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=rows_per_group)
    return path


def test_what_another_library_wrote_is_read_by_name(tmp_path: Path) -> None:
    path = table(tmp_path / "f", other=[0.5, 1.5], n=[1, None], word=["a", "b"])
    assert read(WORDS, path) == [Row(word="a", n=1), Row(word="b", n=None)]


def test_a_row_group_belongs_to_the_range_it_starts_in(tmp_path: Path) -> None:
    path = table(tmp_path / "f", 10, word=[str(n) for n in range(100)], n=list(range(100)))
    with InputFile(path) as file:
        starts = ParquetColumnarRowInputFormat(WORDS).block_starts(file)
    assert len(starts) == 10
    every_byte = range(1, path.stat().st_size, 97)
    assert [row.n for row in read(WORDS, path, *every_byte)] == list(range(100))
    assert [row.n for row in read(WORDS, path, *starts)] == list(range(100))
    chunks = read_chunks(ParquetColumnarRowInputFormat(WORDS), path, starts[3], starts[5])
    assert [row.n for chunk in chunks for row in chunk] == list(range(30, 50))


EVERY_TYPE: list[tuple[str, Any, Any]] = [
    ("byte", Types.BYTE(), 127),
    ("short", Types.SHORT(), -5),
    ("int", Types.INT(), 7),
    ("float", Types.FLOAT(), 0.5),
    ("double", Types.DOUBLE(), 0.1),
    ("boolean", Types.BOOLEAN(), True),
    ("char", Types.CHAR(), "c"),
    ("decimal", Types.BIG_DEC(), Decimal("1.500000000000000000")),
    ("instant", Types.INSTANT(), Instant(2, 7)),
    ("date", Types.SQL_DATE(), datetime.date(2024, 2, 29)),
    ("time", Types.SQL_TIME(), datetime.time(1, 2, 3, 4)),
    ("timestamp", Types.SQL_TIMESTAMP(), datetime.datetime(2024, 2, 29, 1)),  # noqa: DTZ001
    ("bytes", Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x00\xff"),
    ("numbers", Types.PRIMITIVE_ARRAY(Types.INT()), [1, 2]),
    ("strings", Types.BASIC_ARRAY(Types.STRING()), ["a", None]),
    ("instants", Types.LIST(Types.INSTANT()), [Instant(0, 1)]),
    ("map", Types.MAP(Types.STRING(), Types.INT()), {"a": 1, "b": None}),
    ("row", Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.STRING()]), Row(x=1, y=None)),
    ("tuple", Types.TUPLE([Types.INT(), Types.LIST(Types.LONG())]), (1, [2])),
]


@pytest.mark.parametrize(
    ("kind", "value"), [(k, v) for _, k, v in EVERY_TYPE], ids=[name for name, _, _ in EVERY_TYPE]
)
def test_what_the_sink_writes_the_source_reads(kind: Any, value: Any, tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["x"], [kind])
    with (tmp_path / "f").open("wb") as file:
        writer = ParquetBulkWriters.for_row_type(row_type).create(file)
        for row in (Row(x=value), Row(x=None)):
            writer.add_element(row)
        writer.finish()
    assert read(row_type, tmp_path / "f") == [Row(x=value), Row(x=None)]


def test_columns_of_another_width_are_read_if_their_values_fit(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["n"], [Types.INT()])
    assert read(row_type, table(tmp_path / "f", n=[1, 2])) == [Row(n=1), Row(n=2)]
    large = table(tmp_path / "large", 1, n=[1, 2**40])
    with pytest.raises(UnreadableFileError, match=r"row group 1, field 'n': .*1099511627776"):
        read(row_type, large)


def test_a_column_of_another_type_is_rejected(tmp_path: Path) -> None:
    path = table(tmp_path / "f", word=["a"], n=["1"])
    with pytest.raises(UnreadableFileError, match="its schema: field 'n' is string") as caught:
        read(WORDS, path)
    assert str(path) in str(caught.value)
    row_type = Types.ROW_NAMED(["x"], [Types.ROW_NAMED(["y"], [Types.LONG()])])
    with pytest.raises(UnreadableFileError, match=r"'x\.y' is string"):
        read(row_type, table(tmp_path / "g", x=[{"y": "1"}]))
    with pytest.raises(UnreadableFileError, match=r"lacks \['y'\]"):
        read(row_type, table(tmp_path / "h", x=[{"z": "1"}]))


def test_a_missing_column_is_none_as_in_flink(tmp_path: Path) -> None:
    path = table(tmp_path / "f", N=[1], other=[2])
    assert read(WORDS, path) == [Row(word=None, n=None)]
    assert read(WORDS, path, is_case_sensitive=False) == [Row(word=None, n=1)]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"no parquet at all")
    with pytest.raises(UnreadableFileError, match="its footer"):
        read(WORDS, path)
    with InputFile(path) as file, pytest.raises(UnreadableFileError, match="its footer"):
        ParquetColumnarRowInputFormat(WORDS).block_starts(file)
    good = table(tmp_path / "g", word=["a"] * 1000, n=list(range(1000)))
    with pytest.raises(ChangedFileError):
        read_chunks(ParquetColumnarRowInputFormat(WORDS), good, 0, 10**9)
    data = bytearray(good.read_bytes())
    data[100:1500] = b"\xff" * 1400
    good.write_bytes(data)
    with pytest.raises(UnreadableFileError, match="row group 0"):
        read(WORDS, good)


def test_compression_is_what_the_configuration_says(tmp_path: Path) -> None:
    config = Configuration().set_string("parquet.compression", "GZIP")
    with (tmp_path / "f").open("wb") as file:
        writer = ParquetBulkWriters.for_row_type(WORDS, config, utc_timestamp=True).create(file)
        writer.add_element(("a", 1))
        writer.finish()
    assert pq.read_metadata(tmp_path / "f").row_group(0).column(0).compression == "GZIP"
    with pytest.raises(InvalidJobError, match="SNAPPY, GZIP"):
        ParquetBulkWriters.for_row_type(
            WORDS, Configuration().set_string("parquet.compression", "x")
        )
    with pytest.raises(InvalidJobError, match=r"parquet\.page"):
        ParquetBulkWriters.for_row_type(WORDS, Configuration().set_string("parquet.page", "1"))
