"""The rows of `datagen` tables: what their options say, and that they come again as they were."""

from __future__ import annotations

import datetime as dt
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, Encoder, Instant, Row, Types
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.contracts.source import Boundedness, EnumeratorContext, SplitRange
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink
from penstock.errors import InvalidJobError
from penstock.table import DataTypes, Schema, StreamTableEnvironment, TableDescriptor
from penstock.table.datagen import DatagenSource, datagen_source
from penstock.testing import ScriptedFailures, read_lines, run_inline

BEGAN = 1_700_000_000_000
MOMENT = dt.datetime.fromtimestamp(BEGAN // 1000, dt.UTC).replace(tzinfo=None)


def source_of(type_info: TypeInformation, **options: str) -> DatagenSource:
    """A table `t` with a column `x`; options are those of the column, `_` stands for a hyphen."""
    given = {f"fields.x.{name.replace('_', '-')}": value for name, value in options.items()}
    return datagen_source("t", Types.ROW_NAMED(["x"], [type_info]), given)


def read(source: DatagenSource, count: int, start: int = 0) -> list[Row]:
    chunks = source.read(SplitRange(str(BEGAN), start, start + count))
    return list(itertools.chain.from_iterable(chunks))


def values(type_info: TypeInformation, count: int = 300, **options: str) -> list[Any]:
    return [row.x for row in read(source_of(type_info, **options), count)]


@pytest.mark.parametrize(
    ("type_info", "bits"),
    [
        (DataTypes.TINYINT(), 8),
        (DataTypes.SMALLINT(), 16),
        (DataTypes.INT(), 32),
        (DataTypes.BIGINT(), 64),
    ],
)
def test_whole_numbers_are_of_the_whole_range_of_their_type(
    type_info: TypeInformation, bits: int
) -> None:
    seen = values(type_info, 2000)
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    assert least <= min(seen) < least * 0.98
    assert most * 0.98 < max(seen) <= most


def test_both_bounds_are_included() -> None:
    assert set(values(DataTypes.INT(), min="-1", max="2")) == {-1, 0, 1, 2}
    assert set(values(DataTypes.INT(), min="7", max="7")) == {7}


@pytest.mark.parametrize(
    ("type_info", "largest"),
    [(DataTypes.FLOAT(), 3.4028235e38), (DataTypes.DOUBLE(), sys.float_info.max)],
)
def test_other_numbers_are_positive_unless_bounds_say_otherwise(
    type_info: TypeInformation, largest: float
) -> None:
    seen = values(type_info)
    assert 0 <= min(seen) < largest * 0.02
    assert largest * 0.98 < max(seen) < largest
    between = values(type_info, min="-1.5", max="2")
    assert -1.5 <= min(between) < -1.4
    assert 1.9 < max(between) <= 2


def test_text_is_hexadecimal_and_a_hundred_characters_long() -> None:
    for text in values(DataTypes.STRING()):
        assert len(text) == 100
        assert set(text) <= set("0123456789abcdef")
    assert {len(text) for text in values(DataTypes.STRING(), length="7")} == {7}
    assert {len(data) for data in values(DataTypes.BYTES(), length="3")} == {3}


def test_lengths_vary_if_they_may() -> None:
    texts = values(DataTypes.STRING(), length="4", var_len="true")
    assert {len(text) for text in texts} == {1, 2, 3, 4}
    data = values(DataTypes.BYTES(), length="2", var_len="true")
    assert {len(some) for some in data} == {1, 2}


def test_truth_values_are_of_both_kinds() -> None:
    assert 100 < values(DataTypes.BOOLEAN()).count(True) < 200


def test_times_are_those_in_which_rows_are_due() -> None:
    given = {"rows-per-second": "2"}
    types = [DataTypes.TIMESTAMP(), DataTypes.TIMESTAMP_LTZ(), DataTypes.DATE(), DataTypes.TIME()]
    source = datagen_source("t", Types.ROW_NAMED(["a", "b", "c", "d"], types), given)
    moment = MOMENT + dt.timedelta(seconds=1.5)
    (row,) = read(source, 1, start=3)
    assert row == Row(
        a=moment, b=Instant.of_epoch_milli(BEGAN + 1500), c=moment.date(), d=moment.time()
    )


def test_timestamps_are_at_most_max_past_in_the_past() -> None:
    source = datagen_source(
        "t",
        Types.ROW_NAMED(["x"], [DataTypes.TIMESTAMP()]),
        {"rows-per-second": "1", "fields.x.max-past": "10 min"},
    )
    ages = [
        MOMENT + dt.timedelta(seconds=number) - row.x
        for number, row in enumerate(read(source, 300))
    ]
    assert dt.timedelta(0) <= min(ages) < dt.timedelta(minutes=1)
    assert dt.timedelta(minutes=9) < max(ages) <= dt.timedelta(minutes=10)


def test_values_are_none_as_often_as_they_shall_be() -> None:
    seen = values(DataTypes.INT(), 1000, null_rate="0.25")
    assert 200 < seen.count(None) < 300
    assert values(DataTypes.INT(), null_rate="1") == [None] * 300
    kept = [value for value in seen if value is not None]
    assert kept == [
        value
        for value, shown in zip(values(DataTypes.INT(), 1000), seen, strict=True)
        if shown is not None
    ]


@pytest.mark.parametrize(
    ("type_info", "expected"),
    [
        (DataTypes.TINYINT(), [-1, 0, 1]),
        (DataTypes.BIGINT(), [-1, 0, 1]),
        (DataTypes.DOUBLE(), [-1.0, 0.0, 1.0]),
        (DataTypes.STRING(), ["-1", "0", "1"]),
        (DataTypes.BYTES(), [b"\xff" * 8, b"\0" * 8, b"\0" * 7 + b"\1"]),
    ],
)
def test_a_sequence_counts_and_ends_its_table(
    type_info: TypeInformation, expected: list[Any]
) -> None:
    source = source_of(type_info, kind="sequence", start="-1", end="1")
    assert (source.count, source.boundedness()) == (3, Boundedness.BOUNDED)
    assert [row.x for row in read(source, 3)] == expected


def test_the_first_end_is_the_end_of_the_table() -> None:
    def count(**options: str) -> int | None:
        given = {key.replace("_", "-").replace("--", "."): v for key, v in options.items()}
        row_type = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.INT()])
        return datagen_source("t", row_type, given).count

    a = {"fields__a__kind": "sequence", "fields__a__start": "1", "fields__a__end": "9"}
    b = {"fields__b__kind": "sequence", "fields__b__start": "0", "fields__b__end": "3"}
    assert count() is None
    assert count(**a) == 9
    assert count(**a, **b) == 4
    assert count(**a, number_of_rows="2") == 2
    assert count(number_of_rows="0") == 0


def test_a_table_without_an_end_is_unbounded_and_gives_ten_thousand_rows_a_second() -> None:
    source, now = source_of(DataTypes.INT()), [1000.0]
    assert source.boundedness() is Boundedness.CONTINUOUS_UNBOUNDED
    context = EnumeratorContext(1, Path(), lambda: now[0], lambda: None, monotonic=lambda: now[0])
    enumerator = source.enumerator(context)
    enumerator.start({})
    now[0] += 0.5
    assert enumerator.plan(100_000) == [[SplitRange("1000000", 0, 5000)]]
    assert not enumerator.finished()


def test_random_values_are_functions_of_names_and_row() -> None:
    def first(table: str, column: str, **more: TypeInformation) -> list[Any]:
        row_type = DataTypes.ROW([DataTypes.FIELD(n, t) for n, t in more.items()])
        names = [column, *row_type.field_names]
        types = [DataTypes.INT(), *row_type.field_types]
        source = datagen_source(table, Types.ROW_NAMED(names, types), {})
        return [row[column] for row in read(source, 50)]

    assert first("t", "x") == first("t", "x") == first("t", "x", y=DataTypes.STRING())
    assert len({tuple(first(t, x)) for t in ("t", "u") for x in ("x", "y")}) == 4


def test_rows_are_the_same_for_any_ranges() -> None:
    source = source_of(DataTypes.STRING(), length="5", var_len="true", null_rate="0.1")
    whole = read(source, 100)
    pieces = [read(source, size, start) for start, size in ((0, 1), (1, 60), (61, 39))]
    assert list(itertools.chain.from_iterable(pieces)) == whole


def test_a_restored_source_counts_its_time_from_where_it_first_began() -> None:
    source, now = source_of(DataTypes.TIMESTAMP()), [1000.0]
    context = EnumeratorContext(1, Path(), lambda: now[0], lambda: None, monotonic=lambda: now[0])
    first = source.enumerator(context)
    first.start({})
    now[0] += 1
    first.plan(100)
    assert first.positions() == {"1000000": 100}
    now[0] += 3600
    second = source.enumerator(context)
    second.start(first.positions())
    now[0] += 1
    assert second.plan(100) == [[SplitRange("1000000", 100, 200)]]


def test_a_job_that_fails_and_restarts_processes_each_row_once(tmp_path: Path) -> None:
    settings = {
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "penstock.checkpoint.records": "40",
        "penstock.micro-batch.max-records": "20",
        "parallelism.default": "2",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "0 ms",
        "restart-strategy.fixed-delay.attempts": "5",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    tables = StreamTableEnvironment.create(run_inline(env))
    schema = Schema.new_builder().column("n", DataTypes.BIGINT()).column("s", DataTypes.STRING())
    descriptor = (
        TableDescriptor.for_connector("datagen")
        .schema(schema.build())
        .option("number-of-rows", 200)
        .option("fields.s.length", 8)
    )
    tables.create_temporary_table("rows", descriptor.build())
    rows = tables.to_data_stream(tables.from_path("rows"))
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
    failing = rows.map(ScriptedFailures(tmp_path, on=[50, 130]), rows.get_type())
    failing.map(lambda row: f"{row.n} {row.s}", Types.STRING()).sink_to(sink.build())
    env.execute("rows")
    given = {"number-of-rows": "200", "fields.s.length": "8"}
    again = datagen_source("rows", schema.build().row_type, given)
    expected = sorted(f"{row.n} {row.s}" for row in read(again, 200))
    assert sorted(read_lines(tmp_path / "out")) == expected


@pytest.mark.parametrize(
    ("type_info", "options", "said"),
    [
        (
            DataTypes.INT(),
            {"fields.x.length": "3"},
            r"^table 't' has no option 'fields.x.length': remove it; it has [\w., -]+null-rate$",
        ),
        (DataTypes.INT(), {"fields.y.min": "3"}, "has no option 'fields.y.min': remove it"),
        (DataTypes.INT(), {"scan.parallelism": "3"}, "has no option 'scan.parallelism'"),
        (DataTypes.DATE(), {"fields.x.max-past": "1 h"}, "has no option 'fields.x.max-past'"),
        (
            DataTypes.INT(),
            {"fields.x.kind": "Poisson"},
            "table 't': option 'fields.x.kind' must be one of random, sequence; got 'Poisson'",
        ),
        (
            DataTypes.TINYINT(),
            {"fields.x.min": "128"},
            "option 'fields.x.min' must be a whole number from -128 to 127; got '128'",
        ),
        (
            DataTypes.INT(),
            {"fields.x.min": "5", "fields.x.max": "4"},
            "option 'fields.x.max' must be a whole number from 5 to 2147483647; got '4'",
        ),
        (DataTypes.DOUBLE(), {"fields.x.max": "nan"}, r"must be a number from 0.0 to 1.79\S+308;"),
        (DataTypes.STRING(), {"fields.x.length": "0"}, "must be a whole number above zero"),
        (DataTypes.STRING(), {"fields.x.var-len": "yes"}, "must be true or false; got 'yes'"),
        (DataTypes.TIMESTAMP(), {"fields.x.max-past": "soon"}, "must be a duration such as"),
        (DataTypes.INT(), {"fields.x.null-rate": "2"}, "must be a number from 0 to 1; got '2'"),
        (DataTypes.INT(), {"rows-per-second": "0"}, "must be a whole number above zero; got '0'"),
        (DataTypes.INT(), {"number-of-rows": "-1"}, "must be a whole number, zero or more"),
        (
            DataTypes.INT(),
            {"fields.x.kind": "sequence", "fields.x.start": "1"},
            "option 'fields.x.end' must be a whole number from 1 to 2147483647$",
        ),
        (
            DataTypes.INT(),
            {
                "fields.x.kind": "sequence",
                "fields.x.start": "1",
                "fields.x.end": "2",
                "fields.x.null-rate": "0.5",
            },
            "has no option 'fields.x.null-rate'",
        ),
        (
            DataTypes.BOOLEAN(),
            {"fields.x.kind": "sequence"},
            "datagen has no sequence values of type Boolean for column 'x': use numbers or text,",
        ),
        (DataTypes.DECIMAL(5, 2), {}, "datagen has no random values of type BigDecimal"),
        (DataTypes.ARRAY(DataTypes.INT()), {}, "datagen has no random values of type Object"),
    ],
)
def test_what_datagen_does_not_have_is_rejected_by_name(
    type_info: TypeInformation, options: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidJobError, match=said):
        datagen_source("t", Types.ROW_NAMED(["x"], [type_info]), options)
