"""The way from a `datagen` table to a stream, and what is said to those who want more of tables."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from penstock.common import Row, Types
from penstock.datastream import RuntimeExecutionMode
from penstock.errors import InvalidJobError, NoPyFlinkModuleError, NoTableApiError
from penstock.table import DataTypes, Schema, StreamTableEnvironment, TableDescriptor
from tests.unit.support import collected, environment

ANY_SCHEMA: Any = Schema
ANY_DESCRIPTOR: Any = TableDescriptor
"""For what a type checker would refuse too."""

COLUMNS = Schema.new_builder().column("n", DataTypes.INT()).column("s", DataTypes.STRING()).build()


def numbers() -> TableDescriptor:
    """Rows from (1, "a") to (3, "a")."""
    builder = TableDescriptor.for_connector("datagen").schema(COLUMNS)
    builder.option("fields.n.kind", "sequence").option("fields.n.start", 1)
    return builder.option("fields.n.end", "3").option("fields.s.length", 1).build()


def test_a_table_becomes_a_stream_of_named_rows() -> None:
    env = environment()
    tables = StreamTableEnvironment.create(stream_execution_environment=env)
    tables.create_temporary_table("numbers", numbers())
    stream = tables.to_data_stream(tables.from_path("numbers"))
    assert stream.get_type() == Types.ROW_NAMED(["n", "s"], [Types.INT(), Types.STRING()])
    rows = collected(stream)
    assert [row.n for row in rows] == [1, 2, 3]
    assert rows[0] == Row(n=1, s=rows[0][1])
    assert stream.get_name() == "Source: numbers"


def test_rows_cross_an_exchange() -> None:
    tables = StreamTableEnvironment.create(environment(2))
    tables.create_temporary_table("numbers", numbers())
    stream = tables.to_data_stream(tables.from_path("numbers"))
    keyed = stream.key_by(lambda row: row.n % 2).map(lambda row: row.n)
    assert sorted(collected(keyed)) == [1, 2, 3]


def test_a_bounded_table_runs_in_batch_mode_and_an_endless_one_is_rejected() -> None:
    env = environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
    tables = StreamTableEnvironment.create(env)
    tables.create_temporary_table("numbers", numbers())
    assert len(collected(tables.to_data_stream(tables.from_path("numbers")))) == 3
    endless = TableDescriptor.for_connector("datagen").schema(COLUMNS).build()
    tables.create_temporary_table("endless", endless)
    with pytest.raises(InvalidJobError, match="'Source: endless' is unbounded"):
        collected(tables.to_data_stream(tables.from_path("endless")))


def test_a_descriptor_tells_what_it_was_given() -> None:
    assert numbers().get_schema() == COLUMNS
    assert numbers().get_options()["connector"] == "datagen"
    assert numbers().get_options()["fields.n.start"] == "1"


def test_a_table_may_be_there_already_if_that_is_said() -> None:
    tables = StreamTableEnvironment.create()
    tables.create_temporary_table("numbers", numbers())
    table = tables.from_path("numbers")
    tables.create_temporary_table("numbers", numbers(), ignoreIfExists=True)
    assert tables.from_path("numbers") is table
    with pytest.raises(InvalidJobError, match="table 'numbers' exists already"):
        tables.create_temporary_table("numbers", numbers())


def with_numbers(ask: Callable[[Any, Any], Any]) -> Any:
    tables = StreamTableEnvironment.create(environment())
    tables.create_temporary_table("numbers", numbers())
    return ask(tables, tables.from_path("numbers"))


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (lambda tables, _: tables.execute_sql("SELECT 1"), "StreamTableEnvironment.execute_sql"),
        (lambda tables, _: tables.from_data_stream(None), "StreamTableEnvironment.from_data_str"),
        (lambda _, table: table.select("n"), "Table.select"),
        (lambda _, table: table.execute_insert("sink"), "Table.execute_insert"),
        (lambda *_: ANY_SCHEMA.new_builder().watermark("n", "n"), "Schema.Builder.watermark"),
        (lambda *_: ANY_DESCRIPTOR.for_connector("datagen").format("json"), "Builder.format"),
    ],
)
def test_other_calls_of_the_table_api_are_rejected_by_name(
    ask: Callable[[Any, Any], Any], name: str
) -> None:
    with pytest.raises(AttributeError, match=name):
        with_numbers(ask)


def test_a_refusal_says_what_to_do_instead() -> None:
    with pytest.raises(NoTableApiError) as refused:
        with_numbers(lambda _, table: table.group_by("n"))
    assert str(refused.value) == (
        "Table.group_by is not in penstock: of PyFlink's Table API it has only datagen tables, as "
        "sources of streams; use the DataStream API, or pass a Spark DataFrame to "
        "env.from_dataframe()"
    )
    assert not with_numbers(lambda _, table: hasattr(table, "group_by"))
    with pytest.raises(NoPyFlinkModuleError, match=r"^pyflink\.table\.EnvironmentSettings is not"):
        importlib.import_module("penstock.table").EnvironmentSettings  # noqa: B018


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda *_: TableDescriptor.for_connector("kafka"),
            "table connector 'kafka' is not supported, only 'datagen': pass a source",
        ),
        (
            lambda tables, _: tables.create(environment(), environment_settings=1),
            r"create\(\) does not support environment_settings",
        ),
        (
            lambda tables, _: tables.from_path("n"),
            "there is no table 'n', only 'numbers'; use create_",
        ),
        (
            lambda tables, _: tables.to_data_stream("numbers"),
            r"to_data_stream\(\) needs a table, such as from_path\(\); got 'numbers'",
        ),
        (
            lambda tables, _: tables.create_temporary_table(
                "x", TableDescriptor.for_connector("datagen").build()
            ),
            r"table 'x' has no columns: add a schema\(\) to its descriptor",
        ),
        (
            lambda *_: ANY_SCHEMA.new_builder().column("n", "INT"),
            r"column 'n' needs a type such as DataTypes.INT\(\); got 'INT'",
        ),
        (
            lambda *_: Schema.new_builder().column("n", Types.INT()).column("n", Types.INT()),
            "column 'n' exists already: use another name",
        ),
        (lambda *_: Schema.new_builder().build(), "a schema needs columns: add each with column"),
    ],
)
def test_a_table_that_cannot_be_is_rejected(ask: Callable[[Any, Any], Any], said: str) -> None:
    with pytest.raises(InvalidJobError, match=said):
        with_numbers(ask)
