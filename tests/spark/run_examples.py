"""Run every example in this one process, and so on one JVM: ``run_examples.py RESULTS.json``.

The results map each run's name to what it printed (``output``) and, where it raised, to the
traceback (``error``).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.common.config.configuration_file import set_global_overrides
from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.kafka_files import KafkaFiles, connector_jars
from penstock.testing.servers.postgres_server import PostgresServer

KAFKA_ORDERS = 20_000
TABLE_ORDERS = 300
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(example: str, *arguments: str) -> dict[str, str | None]:
    """Run one example as a program and capture what it prints."""
    path, captured = EXAMPLES / f"{example}.py", io.StringIO()
    error, before = None, sys.argv
    sys.argv = [str(path), *arguments]
    try:
        with contextlib.redirect_stdout(captured):
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as ended:
        error = None if not ended.code else f"exit code {ended.code}"
    except Exception:
        error = traceback.format_exc()
    finally:
        sys.argv = before
    return {"output": captured.getvalue(), "error": error}


@contextlib.contextmanager
def beside(example: str) -> Iterator[Callable[[], dict[str, str | None]]]:
    """Run an example in a process of its own; the result waits for its end."""
    command = [sys.executable, str(EXAMPLES / f"{example}.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:

        def result() -> dict[str, str | None]:
            output, errors = process.communicate()
            error = f"exit code {process.returncode}: {errors.decode()[-2000:]}"
            return {"output": output.decode(), "error": error if process.returncode else None}

        try:
            yield result
        finally:
            process.kill()


@contextlib.contextmanager
def server_of(text: str) -> Iterator[str]:
    """Send a text to the first client, then hang up; give the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.sendall(text.encode())

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def lines_in(directory: Path) -> str:
    """Return the lines of all files of a directory, sorted; hidden ones are not finished."""
    files = (path for path in directory.glob("[!.]*") if path.is_file())
    return "\n".join(sorted(line for path in files for line in path.read_text().splitlines()))


def rows_in(directory: Path) -> str:
    """Return the rows of the example's database, what it stages, and whether the job failed."""
    with contextlib.closing(sqlite3.connect(directory / "orders.db")) as connection:
        orders = [value for (value,) in connection.execute("SELECT value FROM orders")]
        (staged,) = connection.execute("SELECT count(*) FROM staged").fetchone()
        (commits,) = connection.execute("SELECT count(*) FROM ledger").fetchone()
    stumbled = (directory / "stumbled").exists()
    return "\n".join([f"staged {staged}, {commits > 1=}, {stumbled=}", *orders])


def kafka_to_postgres() -> Iterator[tuple[str, dict[str, str | None]]]:
    """Run the example on a topic with orders of two customers, and read its table."""
    import psycopg
    from confluent_kafka import Producer

    with KafkaBroker() as broker, PostgresServer() as database:
        broker.create_topic("orders", 2)
        dsn = database.create_database("shop")
        with psycopg.connect(dsn) as connection:
            columns = "customer text, orders bigint, cents bigint"
            connection.execute(f"CREATE TABLE totals ({columns})")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for number in range(TABLE_ORDERS):
            customer = ("ann", "bob")[number % 2]
            order = json.dumps({"customer": customer, "cents": 10})
            producer.produce("orders", order, key=customer)
        producer.flush()
        yield "kafka_to_postgres", run("kafka_to_postgres", broker.bootstrap, dsn, "--once")
        with psycopg.connect(dsn) as connection:
            rows = connection.execute("SELECT * FROM totals ORDER BY customer, orders").fetchall()
        yield "table written", {"output": "\n".join(map(str, rows)), "error": None}


def start_from_history() -> Iterator[tuple[str, dict[str, str | None]]]:
    """Run the example on a topic with all orders, of which its table has the first ones."""
    from confluent_kafka import Producer

    example = runpy.run_path(str(EXAMPLES / "start_from_history.py"))
    with KafkaBroker() as broker:
        broker.create_topic("orders", example["PARTITIONS"])
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for number in range(example["HISTORY"] + example["NEW"]):
            order = json.dumps(example["order"](number))
            producer.produce("orders", order, partition=number % example["PARTITIONS"])
        producer.flush()
        found = run("start_from_history", broker.bootstrap, "orders")
    yield "start_from_history with Kafka", found


def runs(directory: Path) -> Iterator[tuple[str, dict[str, str | None]]]:
    """Run everything; the demos run programs of their own, in processes of their own."""
    has_kafka = KafkaFiles.in_cache().stamp.is_file()
    if has_kafka:
        # For the one session that all of these runs share.
        set_global_overrides({"spark.jars": connector_jars()})
    yield "first_program", run("first_program")
    (directory / "text.txt").write_text("to be or\nnot to be\n")
    yield "word_count", run("word_count", str(directory / "text.txt"))
    with server_of("a b a\r\nb a\nlast line without an end") as address:
        yield "word_count from a socket", run("word_count", address)
    yield "keyed_state", run("keyed_state")
    yield "rolling_aggregates", run("rolling_aggregates")
    yield "window_aggregates", run("window_aggregates")
    yield "fraud_patterns", run("fraud_patterns")
    yield "online_learning", run("online_learning")
    yield "history", run("history")
    yield "inspect_state", run("inspect_state")
    yield "repair_state", run("repair_state")
    yield "start_from_history", run("start_from_history")
    source, target = directory / "from", directory / "to"
    source.mkdir()
    for name in ("a.txt", "b.txt"):
        (source / name).write_text(f"short\na long enough line of {name}\n")
    yield "files_to_files", run("files_to_files", str(source), str(target))
    yield "files written", {"output": lines_in(target), "error": None}
    (directory / "json").mkdir()
    orders = [(1, "tea", 2.5), (2, "ink", 9), (3, "tea", 3)]
    lines = [json.dumps({"id": id_, "item": i, "price": p}) for id_, i, p in orders]
    (directory / "json" / "orders.json").write_text("\n".join(lines) + "\n")
    yield "json_files", run("json_files", str(directory / "json"), str(directory / "totals"))
    yield "JSON written", {"output": lines_in(directory / "totals"), "error": None}
    yield "late_data", run("late_data")
    yield "generator", run("generator", "4")
    yield "notebook", run("notebook")
    yield "dataframe_source", run("dataframe_source")
    yield "alignment", run("alignment", str(directory / "alignment"))
    yield "sums written", {"output": lines_in(directory / "alignment/finished"), "error": None}
    yield "own_sink", run("own_sink", str(directory / "own_sink"))
    yield "rows written", {"output": rows_in(directory / "own_sink"), "error": None}
    yield "spark_writer_sink", run("spark_writer_sink", str(directory / "spark_writer_sink"))
    if has_kafka:
        yield from kafka_to_postgres()
        yield from start_from_history()
    # A demo waits most of the time: for Spark, and for orders.
    with beside("s3_demo") as s3_demo:
        yield "demo", run("demo")
        yield "s3_demo", s3_demo()
    yield "barriers", run("barriers")
    if has_kafka:
        yield "kafka_demo", run("kafka_demo", str(KAFKA_ORDERS))
    left = [path.name for path in directory.glob("penstock-*")]
    yield "leftovers", {"output": "\n".join(left), "error": None}


def main(results_path: Path) -> None:
    sys.path.insert(0, str(EXAMPLES))
    results: dict[str, dict[str, str | None]] = {}
    with tempfile.TemporaryDirectory() as directory:
        # PostgreSQL runs as another user, who must come through here.
        Path(directory).chmod(0o755)
        tempfile.tempdir = os.environ["TMPDIR"] = directory
        for name, result in runs(Path(directory)):
            results[name] = result
            # After each run, so that a crash loses only the runs after it.
            results_path.write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
