"""Verifies both ends of the orders pipeline with plain clients; uses nothing of the engine.

`verify_output` is a pure function of what `look` finds.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import psycopg
from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tests.crash.orders.events import Order, Total, totals

PATIENCE_S = 60.0
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Found:
    """The contents of both ends after the job has ended."""

    orders: Sequence[Sequence[int]]
    """Ids of the orders in each partition of the input."""
    totals: Sequence[Sequence[Total]]
    """What each partition of the output shows to a reader of committed records."""
    rows: Sequence[Total]
    """The table, in no order."""
    prepared: Sequence[str] = ()
    """Prepared transactions that were neither committed nor rolled back."""
    unstable: Sequence[int] = ()
    """How many records of each output partition come after an open transaction."""


@dataclass(slots=True)
class Complaints:
    """Everything that is wrong, by kind; `str()` is one line with examples."""

    kinds: dict[str, list[object]] = field(default_factory=dict)

    def add(self, kind: str, found: Iterable[object]) -> None:
        """Note what was found of a kind, if anything."""
        if several := list(found):
            self.kinds.setdefault(kind, []).extend(several)

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def __str__(self) -> str:
        return "; ".join(
            f"{len(found)} {kind}: {', '.join(map(str, found[:_SHOWN]))}"
            + (", …" if len(found) > _SHOWN else "")
            for kind, found in self.kinds.items()
        )


def verify_output(made: Sequence[Order], found: Found) -> Complaints:
    """Compare what was found with what there has to be."""
    complaints = Complaints()
    for partition, ids in enumerate(found.orders):
        # If this is wrong, the test is, and not the job.
        should = [order.id for order in made if order.partition == partition]
        complaints.add(f"orders wrong in partition {partition} of the input", _unlike(should, ids))
    expected = {total.order: total for total in totals(made)}
    shown = [total for partition in found.totals for total in partition]
    _compare("topic", expected, shown, complaints)
    _compare("table", expected, found.rows, complaints)
    _order(found.totals, complaints)
    complaints.add("prepared transactions left open", found.prepared)
    complaints.add(
        "partitions with an open transaction",
        (f"{count} records of {p}" for p, count in enumerate(found.unstable) if count),
    )
    return complaints


def _unlike(should: Sequence[int], ids: Sequence[int]) -> list[object]:
    if should == list(ids):
        return []
    at = next(
        (i for i, (a, b) in enumerate(zip(should, ids, strict=False)) if a != b),
        min(len(should), len(ids)),
    )
    return [f"{len(ids)} instead of {len(should)}, other ones from {at} on"]


def _compare(
    where: str, expected: dict[int, Total], there: Sequence[Total], complaints: Complaints
) -> None:
    seen = Counter(total.order for total in there)
    complaints.add(f"lost in the {where}", (id_ for id_ in expected if id_ not in seen))
    complaints.add(f"duplicated in the {where}", (id_ for id_, n in seen.items() if n > 1))
    complaints.add(
        f"wrong in the {where}",
        (
            f"{total} instead of {expected.get(total.order)}"
            for total in there
            if total != expected.get(total.order)
        ),
    )


def _order(partitions: Sequence[Sequence[Total]], complaints: Complaints) -> None:
    place: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, partition in enumerate(partitions):
        for total in partition:
            if place.setdefault(total.customer, number) != number:
                complaints.add("in another partition than others of its customer", [total])
            if total.n != last.get(total.customer, 0) + 1:
                previous = last.get(total.customer, 0)
                complaints.add("out of order", [f"{total} after number {previous}"])
            last[total.customer] = total.n


# -- looking ------------------------------------------------------------------------------------


def look(bootstrap: str, orders_topic: str, totals_topic: str, dsn: str, table: str) -> Found:
    """Read both ends; the broker and the database must be there."""
    ends = _ends(bootstrap, totals_topic, IsolationLevel.READ_UNCOMMITTED)
    stable = _ends(bootstrap, totals_topic, IsolationLevel.READ_COMMITTED)
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            f"SELECT order_id, customer, n, total, note FROM {table}"
        ).fetchall()
        prepared = connection.execute(
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        ).fetchall()
    return Found(
        orders=[[json.loads(v)["id"] for v in p] for p in _values(bootstrap, orders_topic)],
        totals=[[_total(v) for v in p] for p in _values(bootstrap, totals_topic)],
        rows=[Total(*row) for row in rows],
        prepared=[gid for (gid,) in prepared],
        unstable=[ends[p] - stable[p] for p in sorted(ends)],
    )


def _total(value: bytes) -> Total:
    read = json.loads(value)
    return Total(*(read[name] for name in ("order_id", "customer", "n", "total", "note")))


def _ends(bootstrap: str, topic: str, level: IsolationLevel) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    partitions = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    requests = {TopicPartition(topic, number): latest for number in partitions}
    answers = admin.list_offsets(requests, isolation_level=level, request_timeout=PATIENCE_S)
    return {where.partition: answer.result().offset for where, answer in answers.items()}


def _values(bootstrap: str, topic: str) -> list[list[bytes]]:
    """The committed values of a topic by partition, from its beginning to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "verifier",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        values: list[list[bytes]] = [[] for _ in partitions]
        consumer.assign([TopicPartition(topic, number, 0) for number in sorted(partitions)])
        open_: set[int | None] = set(partitions)
        deadline = time.monotonic() + PATIENCE_S
        while open_:
            # It waits for the requested number of messages, or for the whole timeout.
            messages = consumer.consume(10_000, 0.2)
            if messages:
                deadline = time.monotonic() + PATIENCE_S
            late = time.monotonic() > deadline
            assert not late, f"{topic}: partitions {open_} cannot be read to their end"
            for message in messages:
                partition, value = message.partition(), message.value()
                if _is_end(message):
                    open_.discard(partition)
                else:
                    assert partition is not None
                    assert value is not None
                    values[partition].append(value)
        return values
    finally:
        consumer.close()


def _is_end(message: Message) -> bool:
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise AssertionError(str(error))
    return error is not None
