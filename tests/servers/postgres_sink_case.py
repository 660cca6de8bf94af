"""PostgreSQL sinks as the common suite of sinks wants them, and a plain look at what they show."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.connectors.postgres.sink import PostgresSink, PostgresSinkBuilder
from tests.contracts.sink_harness import Case, Shows, files_in

_numbers = itertools.count()
_databases: dict[Path, str] = {}


def new_schema(postgres: Any) -> str:
    """Create a schema, and return a dsn whose search path is that schema.

    What earlier tests left prepared goes: they share the database, since making one takes longer
    than most tests.
    """
    dsn = _databases.get(postgres.directory)
    if dsn is None:
        dsn = _databases[postgres.directory] = postgres.create_database("sinks")
    for gid in prepared(dsn):
        run(dsn, f"ROLLBACK PREPARED '{gid}'")
    schema = f"test_{next(_numbers)}"
    run(dsn, f"CREATE SCHEMA {schema}")
    return make_conninfo(dsn, options=f"-c search_path={schema}")


def schema_of(dsn: str) -> str:
    return str(conninfo_to_dict(dsn).get("options")).partition("=")[2] or "penstock"


def run(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements, and return the rows of the last one."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def prepared(dsn: str) -> list[str]:
    query = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    return [gid for (gid,) in run(dsn, query)]


def dsn_of(case: Case) -> str:
    return str(case.sink._settings.dsn._text)  # type: ignore[attr-defined]


def lines_table(postgres: Any) -> str:
    """Create a table of strings that keeps their order, and return the dsn."""
    dsn = new_schema(postgres)
    identity = "n bigint GENERATED ALWAYS AS IDENTITY"
    run(dsn, f"CREATE TABLE lines ({identity}, text text NOT NULL)")
    return dsn


def lines_in(dsn: str) -> list[str]:
    return [text for (text,) in run(dsn, "SELECT text FROM lines ORDER BY n")]


def lines_sink(dsn: str) -> PostgresSinkBuilder:
    return sink_into(dsn, "lines").set_columns("text")


def sink_into(dsn: str, table: str) -> PostgresSinkBuilder:
    """Return the builder of a sink whose ledger is in the schema of the test."""
    builder = PostgresSink.builder().set_dsn(dsn).set_table(table)
    return builder.set_ledger_schema(schema_of(dsn))


def two_phase_case(postgres: Any, directory: Path, *, two_phase: bool = True) -> Case:
    dsn = lines_table(postgres)
    return Case(
        lines_sink(dsn).set_two_phase(two_phase).build(),
        lambda: lines_in(dsn),
        lambda: [*files_in(directory / "work"), *map(Path, prepared(dsn))],
        has_connections=True,
    )


def single_phase_case(postgres: Any, directory: Path) -> Case:
    return two_phase_case(postgres, directory, two_phase=False)


def upsert_case(postgres: Any, directory: Path) -> Case:
    """Strings as their own keys: a repeated one replaces itself."""
    dsn = lines_table(postgres)
    run(dsn, "ALTER TABLE lines ADD PRIMARY KEY (text)")
    return Case(
        lines_sink(dsn).set_key_columns("text").build(),
        lambda: lines_in(dsn),
        lambda: files_in(directory / "work"),
        shows=Shows.WITH_MICRO_BATCHES,
        keeps_order=False,
        has_connections=True,
    )
