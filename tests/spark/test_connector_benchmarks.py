"""The benches of connectors do what they say, at sizes that say nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.connectors import counting, rows, source_alone, spark_queries, tables, visible
from benchmarks.connectors.observer import KEYS
from benchmarks.connectors.orders import Orders
from benchmarks.report import markdown_sheet
from pyspark.sql import SparkSession

from penstock.spark.session import open_session
from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.kafka_files import connector_jars
from penstock.testing.servers.postgres_server import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

CUSTOMERS = 20


@pytest.fixture(scope="module")
def given(kafka: KafkaBroker) -> Iterator[dict[str, Any]]:
    """Two topics with orders, and a session that can read them."""
    if (active := SparkSession.getActiveSession()) is not None:
        active.stop()
    settings = {"spark.master": "local[2,4]", "spark.sql.shuffle.partitions": "2"}
    session = open_session({**settings, "spark.jars": connector_jars()})
    topics = {"check": 500, "orders": 1_000}
    orders: dict[str, Any] = {}
    for name, count in topics.items():
        orders[name] = [f"{name}-{uuid.uuid4().hex[:8]}", count]
        Orders(count, CUSTOMERS).send(kafka.bootstrap, orders[name][0])
    yield {"bootstrap": kafka.bootstrap, "rounds": 1, "rows_per_batch": 400, **orders}
    session.stop()


@pytest.fixture(scope="module")
def dsn(postgres: PostgresServer) -> str:
    return postgres.create_database(f"bench_{uuid.uuid4().hex[:8]}")


def test_both_guarantees_and_the_query_have_the_same_counts(
    given: dict[str, Any], tmp_path: Path
) -> None:
    checkpoints: dict[str, Any] = {"interval_s": 0.5, "directory": str(tmp_path / "counting")}
    ours = counting.run(**given, **checkpoints, keys=CUSTOMERS)
    query = spark_queries.run(**given, keys=CUSTOMERS, queries=["count"])
    assert [run["kind"] for run in ours["runs"]] == ["exactly once", "at least once"]
    assert all(0 < run["rows"] < 1_000 for run in ours["runs"])
    sheet = markdown_sheet(tables.count_sheet([(given, ours), (given, query)]))
    assert "Spark's own query, at least once" in sheet
    (base,) = [line for line in sheet.splitlines() if line.startswith("| penstock, at least once")]
    assert base.endswith("| 1.00 |")


def test_the_source_and_the_query_read_everything(given: dict[str, Any]) -> None:
    ours = source_alone.run(**given)
    query = spark_queries.run(**given, keys=CUSTOMERS, queries=["to_python"])
    sheet = markdown_sheet(tables.source_sheet([(given, ours), (given, query)]))
    assert "Spark's own query, to a function in Python" in sheet


def test_rows_are_copied_by_the_job_and_by_a_plain_copy(
    given: dict[str, Any], dsn: str, tmp_path: Path
) -> None:
    checkpoints: dict[str, Any] = {"interval_s": 0.5, "directory": str(tmp_path / "rows")}
    found = rows.run(**given, **checkpoints, dsn=dsn, keys=CUSTOMERS)
    kinds = {run["kind"] for run in found["runs"]}
    assert kinds == {rows.JOB, rows.OWN_ROWS, rows.PLAIN, rows.FROM_KAFKA}
    assert "plain psycopg" in markdown_sheet(tables.rows_sheet([(given, found)]))


def test_every_record_is_visible_after_its_checkpoint(
    given: dict[str, Any], dsn: str, tmp_path: Path
) -> None:
    found = visible.run(
        bootstrap=given["bootstrap"],
        dsn=dsn,
        rate=50.0,
        seconds=2.0,
        warm_up=0.5,
        interval_s=0.5,
        directory=str(tmp_path / "visible"),
    )
    for place in ("topic", "table"):
        assert 90 <= len(found[place]["end_to_end"]) <= 110 + KEYS
        assert min(found[place]["since_complete"]) >= 0
        assert min(found[place]["end_to_end"]) > 0
    assert "a table, SELECT" in markdown_sheet(tables.visible_sheet([({}, found)]))
