import datetime
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Instant, Row, Types
from penstock.connectors.contracts.sink import WriterContext
from penstock.connectors.formats.columnar.writers import ParquetBulkWriters
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.formats import parquet as public
from penstock.errors import InvalidJobError, TypeMismatchError

WORDS = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()])


def written(path: Path, row_type: Any, rows: Sequence[Any]) -> Path:
    with path.open("wb") as file:
        writer = ParquetBulkWriters.for_row_type(row_type).create(file)
        for row in rows:
            writer.add_element(row)
        writer.finish()
    return path


def test_columns_carry_the_names_of_the_fields(tmp_path: Path) -> None:
    rows = [Row("a", 1), Row(word="b", count=None), ("c", 3), Row(count=4, word="d")]
    table = pq.read_table(written(tmp_path / "file", WORDS, rows))
    assert table.schema.equals(pa.schema([("word", pa.string()), ("count", pa.int64())]))
    assert table.to_pydict() == {"word": ["a", "b", "c", "d"], "count": [1, None, 3, 4]}


def test_files_are_compressed_with_snappy(tmp_path: Path) -> None:
    metadata = pq.read_metadata(written(tmp_path / "file", WORDS, [("a", 1)]))
    assert metadata.row_group(0).column(0).compression == "SNAPPY"


EVERY_TYPE: list[tuple[Any, Any, Any]] = [
    (Types.BYTE(), 127, 127),
    (Types.SHORT(), -5, -5),
    (Types.INT(), 7, 7),
    (Types.FLOAT(), 0.5, 0.5),
    (Types.DOUBLE(), 0.1, 0.1),
    (Types.BOOLEAN(), True, True),
    (Types.CHAR(), "c", "c"),
    (Types.BIG_DEC(), Decimal("1.5"), Decimal("1.5")),
    (Types.SQL_DATE(), datetime.date(2024, 2, 29), datetime.date(2024, 2, 29)),
    (Types.SQL_TIME(), datetime.time(1, 2, 3, 4), datetime.time(1, 2, 3, 4)),
    (
        Types.SQL_TIMESTAMP(),
        datetime.datetime(2024, 2, 29, 1, 2, 3, 4),  # noqa: DTZ001
        datetime.datetime(2024, 2, 29, 1, 2, 3, 4),  # noqa: DTZ001
    ),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x00\xff", b"\x00\xff"),
    (Types.PRIMITIVE_ARRAY(Types.INT()), [1, 2], [1, 2]),
    (Types.BASIC_ARRAY(Types.STRING()), ["a", None], ["a", None]),
    (Types.LIST(Types.LONG()), [1], [1]),
    (Types.MAP(Types.STRING(), Types.INT()), {"a": 1, "b": None}, [("a", 1), ("b", None)]),
    (Types.ROW_NAMED(["x"], [Types.INT()]), Row(x=1), {"x": 1}),
    (Types.TUPLE([Types.INT(), Types.STRING()]), (1, "a"), {"f0": 1, "f1": "a"}),
    (
        Types.OBJECT_ARRAY(Types.TUPLE([Types.LIST(Types.INT())])),
        [([1, 2],), None],
        [{"f0": [1, 2]}, None],
    ),
]


@pytest.mark.parametrize(("kind", "value", "read"), EVERY_TYPE, ids=lambda v: repr(v)[:30])
def test_values_are_read_as_written(kind: Any, value: Any, read: Any, tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["x"], [kind])
    table = pq.read_table(written(tmp_path / "file", row_type, [Row(x=value), Row(x=None)]))
    assert table.to_pylist() == [{"x": read}, {"x": None}]


def test_instants_keep_their_nanoseconds(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["at"], [Types.INSTANT()])
    table = pq.read_table(written(tmp_path / "file", row_type, [Row(at=Instant(2, 7))]))
    assert table.schema.field("at").type == pa.timestamp("ns", "UTC")
    assert table["at"].cast(pa.int64()).to_pylist() == [2_000_000_007]


@pytest.mark.parametrize("kind", [Types.BIG_INT(), Types.LIST(Types.PICKLED_BYTE_ARRAY())])
def test_types_without_a_column_are_rejected_by_the_builder(kind: Any) -> None:
    with pytest.raises(InvalidJobError, match="column 'x'"):
        ParquetBulkWriters.for_row_type(Types.ROW_NAMED(["x"], [kind]))
    with pytest.raises(TypeError, match="ROW_NAMED"):
        ParquetBulkWriters.for_row_type(Types.STRING())  # type: ignore[arg-type]


@pytest.mark.filterwarnings("error")
def test_a_row_of_another_type_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    sink = FileSink.for_bulk_format(tmp_path, ParquetBulkWriters.for_row_type(WORDS)).build()
    writer = sink.writer(WriterContext(0, 1, tmp_path, "name", None, "job", "a1"))
    writer.write(("a", 1))
    with pytest.raises(TypeMismatchError, match="'count'"):
        writer.write(("a", "many"))
    writer.abort()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_row_may_change_after_it_was_written(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["n"], [Types.LIST(Types.INT())])
    row = Row(n=[1])
    with (tmp_path / "file").open("wb") as file:
        writer = ParquetBulkWriters.for_row_type(row_type).create(file)
        writer.add_element(row)
        row["n"].append(2)
        row["n"] = []
        writer.finish()
    assert pq.read_table(tmp_path / "file").to_pylist() == [{"n": [1]}]


def test_merging_keeps_order_and_fills_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.connectors.formats.columnar.writers.ROWS_PER_GROUP", 100)
    sizes = [107, 3, 60, 60, 1]
    numbers = iter(range(sum(sizes)))
    pieces = [
        written(tmp_path / str(at), WORDS, [("w", next(numbers)) for _ in range(size)])
        for at, size in enumerate(sizes)
    ]
    with (tmp_path / "merged").open("wb") as file:
        ParquetBulkWriters.for_row_type(WORDS).merge(pieces, file)
    merged = pq.ParquetFile(tmp_path / "merged")
    assert merged.read()["count"].to_pylist() == list(range(sum(sizes)))
    groups = [merged.metadata.row_group(n).num_rows for n in range(merged.num_row_groups)]
    assert groups == [100, 130, 1]


def test_a_bulk_format_rolls_at_checkpoints_only(tmp_path: Path) -> None:
    factory = public.ParquetBulkWriters.for_row_type(WORDS)
    builder = FileSink.for_bulk_format(tmp_path, factory)
    builder.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
    with pytest.raises(ValueError, match="on_checkpoint_rolling_policy"):
        builder.with_rolling_policy(RollingPolicy.default_rolling_policy())  # type: ignore[arg-type]
