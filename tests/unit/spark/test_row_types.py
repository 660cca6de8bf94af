"""Rows and the columns of a DataFrame, without a Spark that runs."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest
from pyspark.sql import types as spark_types

from penstock.common import Row, Types
from penstock.common.time import Instant
from penstock.errors import InvalidJobError
from penstock.spark.native.native_step import quoted_view
from penstock.spark.row_types import ArrowRows, RowsOfBatches, row_type_of, spark_schema

INNER = Types.ROW_NAMED(["x", "at"], [Types.INT(), Types.INSTANT()])
EVERY = Types.ROW_NAMED(
    ["text", "yes", "n", "real", "price", "at", "local", "day", "raw", "tags", "counts", "inner"],
    [
        Types.STRING(),
        Types.BOOLEAN(),
        Types.LONG(),
        Types.DOUBLE(),
        Types.BIG_DEC(),
        Types.INSTANT(),
        Types.SQL_TIMESTAMP(),
        Types.SQL_DATE(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.OBJECT_ARRAY(Types.STRING()),
        Types.MAP(Types.STRING(), INNER),
        INNER,
    ],
)
FULL = Row(
    "ann",
    True,
    2**40,
    0.5,
    Decimal("12.30"),
    Instant(-3, 7_000),
    datetime.datetime(2024, 2, 29, 12, 30, 1, 5),  # noqa: DTZ001  a local time has no zone
    datetime.date(2024, 2, 29),
    b"\x00\xff",
    ["x", None],
    {"k": Row(x=1, at=Instant(5, 0))},
    Row(x=2, at=None),
)


def test_every_type_survives_the_round_trip_through_spark() -> None:
    assert row_type_of(spark_schema(EVERY)) == EVERY


def test_every_value_survives_the_round_trip_through_arrow() -> None:
    empty = Row(*[None] * len(FULL))
    batch = ArrowRows(EVERY).of_rows([FULL, empty])
    full, nothing = RowsOfBatches(EVERY)(batch)
    assert list(full) == [*list(FULL)[:4], Decimal("12.300000000000000000"), *list(FULL)[5:]]
    assert full.inner.x == 2
    assert list(nothing) == list(empty)


def test_a_type_without_a_column_is_refused_with_its_field() -> None:
    with pytest.raises(InvalidJobError, match="field 'any': a DataFrame has no column type"):
        spark_schema(Types.ROW_NAMED(["any"], [Types.PICKLED_BYTE_ARRAY()]))


def test_two_columns_with_the_same_name_are_refused() -> None:
    column = spark_types.StructField("n", spark_types.LongType())
    with pytest.raises(InvalidJobError, match="two columns named 'n'"):
        row_type_of(spark_types.StructType([column, column]))


@pytest.mark.parametrize(
    ("query", "quoted"),
    [
        ("SELECT * FROM stream s", "SELECT * FROM `stream` s"),
        ("select * from\n stream", "select * from\n `stream`"),
        ("SELECT * FROM dims JOIN stream AS s", "SELECT * FROM dims JOIN `stream` AS s"),
        ("SELECT 'from stream x' FROM stream", "SELECT 'from stream x' FROM `stream`"),
        ("SELECT 1 -- from stream", "SELECT 1 -- from stream"),
        ("SELECT * FROM streams", "SELECT * FROM streams"),
    ],
    ids=["alias", "new line", "join", "literal", "comment", "other table"],
)
def test_the_name_of_the_view_is_quoted(query: str, quoted: str) -> None:
    assert quoted_view(query) == quoted
