"""Who watches the watchman: the verifier of the orders pipeline finds what is wrong."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.orders.events import PARTITIONS, Total, orders, stops, totals
from tests.crash.orders.verifier import Found, verify_output

MADE = orders(7, 600)


def all_well() -> Found:
    made = list(totals(MADE))
    of_customer = {order.customer: order.partition for order in MADE}
    return Found(
        orders=[[o.id for o in MADE if o.partition == p] for p in range(PARTITIONS)],
        totals=[[t for t in made if of_customer[t.customer] == p] for p in range(PARTITIONS)],
        rows=list(reversed(made)),
        unstable=[0] * PARTITIONS,
    )


def with_first_partition(found: Found, totals: Sequence[Total]) -> Found:
    return replace(found, totals=[totals, *found.totals[1:]])


def lost_record(found: Found) -> Found:
    return with_first_partition(found, found.totals[0][:-1])


def doubled_record(found: Found) -> Found:
    return with_first_partition(found, [*found.totals[0], found.totals[0][-1]])


def swapped_records(found: Found) -> Found:
    mine = list(found.totals[0])
    a = next(i for i, t in enumerate(mine) if t.n == 1 and mine.count(t) == 1)
    b = next(i for i, t in enumerate(mine) if t.customer == mine[a].customer and t.n == 2)
    mine[a], mine[b] = mine[b], mine[a]
    return with_first_partition(found, mine)


def record_elsewhere(found: Found) -> Found:
    *mine, last = found.totals[0]
    return replace(found, totals=[mine, [*found.totals[1], last], *found.totals[2:]])


def wrong_record(found: Found) -> Found:
    *mine, last = found.totals[0]
    return with_first_partition(found, [*mine, last._replace(total=last.total + 1)])


def invented_record(found: Found) -> Found:
    ghost = Total(1_000_000, "c999", 1, 5, "")
    return with_first_partition(found, [*found.totals[0], ghost])


def lost_row(found: Found) -> Found:
    return replace(found, rows=found.rows[1:])


def doubled_row(found: Found) -> Found:
    return replace(found, rows=[*found.rows, found.rows[0]])


def wrong_row(found: Found) -> Found:
    return replace(found, rows=[found.rows[0]._replace(note="?"), *found.rows[1:]])


def orphan(found: Found) -> Found:
    return replace(found, prepared=["penstock-1"])


def open_transaction(found: Found) -> Found:
    return replace(found, unstable=[0, 3, 0, 0])


def other_input(found: Found) -> Found:
    return replace(found, orders=[found.orders[0][1:], *found.orders[1:]])


def test_correct_output_has_no_complaints() -> None:
    assert not verify_output(MADE, all_well())


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        (lost_record, "1 lost in the topic"),
        (doubled_record, "1 duplicated in the topic"),
        (swapped_records, "out of order"),
        (record_elsewhere, "1 in another partition than others of its customer"),
        (wrong_record, "1 wrong in the topic"),
        (invented_record, "1 wrong in the topic"),
        (lost_row, "1 lost in the table"),
        (doubled_row, "1 duplicated in the table"),
        (wrong_row, "1 wrong in the table"),
        (orphan, "1 prepared transactions left open: penstock-1"),
        (open_transaction, "1 partitions with an open transaction: 3 records of 1"),
        (other_input, "1 orders wrong in partition 0 of the input"),
    ],
)
def test_wrong_output_has_complaints(harm: Callable[[Found], Found], complaint: str) -> None:
    assert complaint in str(verify_output(MADE, harm(all_well())))


def test_a_seed_always_makes_the_same_orders() -> None:
    assert orders(7, 600) == MADE != orders(8, 600)
    assert sum(stops(MADE)) == 600
    assert min(stops(orders(7, 5_000))) > 0


def test_the_verifier_uses_nothing_of_the_engine() -> None:
    here = Path(__file__).parent / "orders"
    for name in ("verifier.py", "events.py"):
        tree = ast.parse((here / name).read_text())
        modules = {
            module
            for node in ast.walk(tree)
            for module in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert not any(module.split(".")[0] == "penstock" for module in modules), name
