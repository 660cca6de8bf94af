"""The demo of `make demo-kafka`: Kafka to Kafka and PostgreSQL, with each part killed once.

The job is `kafka_orders.py`. This program starts a real broker and a real database, sends orders,
starts the job with `penstock run --supervise`, and kills its driver, one of its Python workers, the
broker and the database, each with -9. Finally it reads the topic and the table with plain clients
and compares them with what was sent; it uses none of penstock's code for that.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import kafka_orders
import psycopg
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from demo import (
    VerificationResult,
    Watch,
    checkpoints,
    console,
    has_ended_well,
    read_driver,
    running_job,
    temporary_directory,
)
from kafka_orders import PARTITIONS, Booked, Order
from rich.box import SIMPLE_HEAD
from rich.table import Table

from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.kafka_files import connector_jars
from penstock.testing.servers.postgres_server import PostgresServer

ORDERS, CUSTOMERS = 60_000, 1_000
PARTS = 4
PER_SECOND = 4_000
CHECKPOINTS_BEFORE_A_KILL = 2
AWAY_S = 1.0

QUIET = {"log_level": 0, "logger": logging.getLogger("clients of the demo")}
"""Clients that lose their broker log it again and again."""


def main(orders: int) -> int:
    console.print(INTRODUCTION.format(orders=orders))
    with temporary_directory() as directory, KafkaBroker() as broker, PostgresServer() as database:
        dsn = prepare(broker, database)
        console.print(
            f"A broker answers on {broker.bootstrap}, a database on port {database.port}.\n\n"
            "$ penstock run --supervise -D spark.jars=... \\\n"
            f"    examples/kafka_orders.py DIRECTORY {broker.bootstrap} DSN {orders}\n"
        )
        arguments = broker.bootstrap, dsn, str(orders)
        jars = {"spark.jars": connector_jars()}
        with (
            Shop(broker.bootstrap, orders) as shop,
            running_job(kafka_orders.__file__, directory, *arguments, more=jars) as job,
        ):
            killed = Run(directory, dsn, shop).watch_and_kill(job, broker, database)
            if not has_ended_well(job, directory):
                return 1
        return 0 if is_exact(shop, broker.bootstrap, dsn) and len(killed) == PARTS else 1


def prepare(broker: KafkaBroker, database: PostgresServer) -> str:
    """Create both topics and the table; return the database's address."""
    broker.create_topic("orders", PARTITIONS)
    broker.create_topic("totals", PARTITIONS)
    dsn: str = database.create_database("shop")
    with psycopg.connect(dsn) as connection:
        columns = "id bigint, customer text, number bigint, total bigint"
        connection.execute(f"CREATE TABLE totals ({columns})")
    return dsn


# -- orders -------------------------------------------------------------------------------------


def order(number: int) -> Order:
    return number, f"c{number * 7919 % CUSTOMERS}", number * 31 % 9000 + 100


def partition_of(customer: str) -> int:
    """All orders of a customer are in one partition, and therefore in order."""
    return int(customer[1:]) % PARTITIONS


class Shop(threading.Thread):
    """Sends orders to Kafka, as many as it is allowed."""

    def __init__(self, bootstrap: str, orders: int) -> None:
        super().__init__(name="shop", daemon=True)
        self.orders = orders
        self.acknowledged = 0
        self._allowed = 0
        self._closed = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 10, **QUIET}
        )

    def allow(self, share: float) -> None:
        self._allowed = max(self._allowed, round(self.orders * min(1.0, share)))

    def __enter__(self) -> Shop:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        self.join()

    def run(self) -> None:
        sent = 0
        while not self._closed.is_set() and self.acknowledged < self.orders:
            self._producer.poll(0.05)
            upto = min(self._allowed, sent + PER_SECOND // 20)
            for number in range(sent, upto):
                self._send(*order(number))
            sent = upto

    def _send(self, number: int, customer: str, cents: int) -> None:
        self._producer.produce(
            "orders",
            json.dumps({"id": number, "customer": customer, "cents": cents}),
            customer,
            partition_of(customer),
            on_delivery=self._delivered,
        )

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self.acknowledged += error is None


# -- what happens -------------------------------------------------------------------------------

Victim = tuple[str, Callable[[], bool]]


class Run(Watch):
    def __init__(self, directory: Path, dsn: str, shop: Shop) -> None:
        super().__init__(directory)
        self._dsn = dsn
        self._shop = shop

    def watch_and_kill(
        self, job: subprocess.Popen[bytes], broker: KafkaBroker, database: PostgresServer
    ) -> list[str]:
        """Print what happens until the job has ended; return the parts that were killed."""
        victims: list[Victim] = [
            ("the driver", self._kill_driver),
            ("one of its Python workers", self._kill_worker),
            ("the broker", partial(self._kill_server, broker, "the broker")),
            ("the database", partial(self._kill_server, database, "the database")),
        ]
        killed: list[str] = []
        since, is_over = 0.0, False
        while job.poll() is None:
            time.sleep(0.1)
            self.print_news()
            completed = checkpoints(self._directory)
            # Some orders per checkpoint, so that there is always input, and some for each kill.
            share = min(1 + len(completed) / 4, 2 + len(killed)) / (PARTS + 2)
            self._shop.allow(1.0 if is_over else share)
            done = [c for c in completed if c["triggered"] > since]
            if len(done) < CHECKPOINTS_BEFORE_A_KILL or is_over:
                continue
            if len(killed) == PARTS:
                self.print("each part is running again; the remaining orders are sent at once")
                is_over = True
            elif victims[len(killed)][1]():
                killed.append(victims[len(killed)][0])
                since = time.time()
        self.print_news()
        return killed

    def describe_recovery(self, recovery: dict[str, Any]) -> str:
        why = recovery["cause"].splitlines()[0]
        attempt, checkpoint = recovery["attempt"], recovery["checkpoint"]
        return f"attempt {attempt} resumes from checkpoint {checkpoint}: {why[:40]}"

    def figures(self, checkpoint: dict[str, Any]) -> str:
        return f"{self._shop.acknowledged:,} orders sent, {self._rows()} rows in the table"

    def _rows(self) -> str:
        with suppress(psycopg.Error), psycopg.connect(self._dsn, connect_timeout=2) as connection:
            for (rows,) in connection.execute("SELECT count(*) FROM totals"):
                return f"{rows:,}"
        return "?"

    def _kill_driver(self) -> bool:
        driver = read_driver(self._directory)
        return driver is not None and self._kill(driver["pid"], "the driver")

    def _kill_worker(self) -> bool:
        driver = read_driver(self._directory)
        found = [] if driver is None else workers_of(driver["pid"])
        return bool(found) and self._kill(found[0], "one of its Python workers")

    def _kill(self, pid: int, name: str) -> bool:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.print(f"[red bold]kill -9 {pid}[/], {name}")
            return True
        return False

    def _kill_server(self, server: KafkaBroker | PostgresServer, name: str) -> bool:
        self.print(f"[red bold]kill -9 {server.pid}[/], {name}")
        server.kill()
        time.sleep(AWAY_S)
        server.start()
        self.print(f"[yellow]{name} is running again, on the same port with the same data[/]")
        return True


def workers_of(driver: int) -> list[int]:
    """Find the Python workers of a driver, which a daemon of the same name forks."""
    parents = dict(processes())
    daemons = {pid for pid in parents if b"daemon" in command_of(pid)}

    def is_below(pid: int) -> bool:
        return pid == driver or (pid in parents and is_below(parents[pid]))

    return [pid for pid in sorted(daemons) if parents[pid] in daemons and is_below(pid)]


def processes() -> Iterator[tuple[int, int]]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            yield int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[1])


def command_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


# -- verification --------------------------------------------------------------------------------


def due(orders: int) -> list[Booked]:
    """Return the expected results of this many orders, computed with a plain dictionary."""
    accounts: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    booked = []
    for id_, customer, cents in map(order, range(orders)):
        number, total = accounts[customer]
        accounts[customer] = number + 1, total + cents
        booked.append((id_, customer, *accounts[customer]))
    return booked


def in_topic(bootstrap: str) -> list[Booked]:
    """Read the committed messages of the topic, each partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "verification",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition("totals", p, 0) for p in range(PARTITIONS)])
    found, ended = [], set[int]()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(10_000, timeout=1.0):
            error = message.error()
            if error is None:
                id_, customer, number, total = json.loads(message.value() or b"")
                found.append((id_, customer, number, total))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
            else:
                raise RuntimeError(error.str())
    consumer.close()
    return found


def in_table(dsn: str) -> list[Booked]:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT id, customer, number, total FROM totals").fetchall()


def left_open(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        ((found,),) = connection.execute("SELECT count(*) FROM pg_prepared_xacts")
        return int(found)


def verify(expected: list[Booked], results: list[Booked], *, in_order: bool) -> VerificationResult:
    """Compare results with the expected ones; `in_order`: also their order per customer."""
    ordered = Counter(id_ for id_, *_ in expected)
    there = Counter(id_ for id_, *_ in results)
    wrong = len(set(results) - set(expected))
    return VerificationResult(
        events=len(expected),
        results=len(results),
        lost=(ordered - there).total(),
        duplicated=(there - ordered).total(),
        wrong=wrong + (out_of_order(results) if in_order else 0),
    )


def out_of_order(results: Iterable[Booked]) -> int:
    last: dict[str, int] = {}
    late = 0
    for _, customer, number, _ in results:
        late += number < last.get(customer, 0)
        last[customer] = number
    return late


def is_exact(shop: Shop, bootstrap: str, dsn: str) -> bool:
    """Show all counts side by side; return whether they are as expected."""
    expected = due(shop.orders)
    topic = verify(expected, in_topic(bootstrap), in_order=True)
    table = verify(expected, in_table(dsn), in_order=False)
    sheet = Table("", box=SIMPLE_HEAD)
    for column in ("orders", "lost", "duplicated", "wrong"):
        sheet.add_column(column, justify="right")
    sheet.add_row("sent to the topic orders", f"{shop.acknowledged:,}", "", "", "")
    for place, result in {"the topic totals": topic, "the table totals": table}.items():
        counts = result.results, result.lost, result.duplicated, result.wrong
        sheet.add_row(f"found in {place}", *(f"{count:,}" for count in counts))
    console.print(sheet)
    console.print(f"prepared transactions left in the database: {left_open(dsn)}\n")
    is_good = topic.is_good and table.is_good and left_open(dsn) == 0
    console.print(
        f"[{'green' if is_good else 'red'} bold]orders {shop.acknowledged:,}, in the topic "
        f"{topic.results:,}, in the table {table.results:,}, lost {topic.lost + table.lost}, "
        f"duplicated {topic.duplicated + table.duplicated}, "
        f"wrong {topic.wrong + table.wrong}[/]\n"
    )
    console.print(EXPLANATION)
    return is_good and shop.acknowledged == shop.orders


INTRODUCTION = """\
[bold]{orders:,} orders from Kafka, on Spark, into Kafka and PostgreSQL. Driver, worker, broker and
database will each be killed with -9.[/]
A keyed step numbers the orders of each customer and adds them up. Its results go to a topic and to
a table. Every second a checkpoint is taken. The broker and Spark take some seconds to start.
"""

EXPLANATION = """\
- Output becomes visible only when its checkpoint is complete: until then messages are in files, and
  rows are in prepared transactions of the database.
- Then the messages are published in one Kafka transaction, together with a marker that names the
  checkpoint. A restarted driver reads the marker.
- A database that dies between PREPARE and COMMIT still has the transaction after its restart.
- Positions in Kafka, totals, messages and rows belong to the same checkpoint, from which a new
  driver resumes.
- The verification read the topic (only committed messages) and the table with plain clients."""


if __name__ == "__main__":
    # Exit with an exception, so that everything is cleaned up.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else ORDERS))
