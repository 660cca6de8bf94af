"""The Kafka source of penstock alone: lines as Python strings, which are discarded.

No checkpoints, no exchange. The rate is that of the source's micro-batches after the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.connectors import jobs
from benchmarks.contract import WrongResultError
from penstock.datastream.connectors.discard import DiscardingSink


def run(
    bootstrap: str, check: Sequence[Any], orders: Sequence[Any], rounds: int, rows_per_batch: int
) -> dict[str, Any]:
    """Read the topic several times after a warm-up; return the rate of each run."""
    for warm_up in (check, orders):
        _measure(bootstrap, warm_up, rows_per_batch)
    found = []
    for _ in range(rounds):
        one = _measure(bootstrap, orders, rows_per_batch)
        print(f"source: {one['rows'] / one['seconds']:,.0f} rows/s", flush=True)
        found.append(one)
    return {"runs": found}


def _measure(bootstrap: str, orders: Sequence[Any], rows_per_batch: int) -> dict[str, Any]:
    topic, rows = orders
    env = jobs.environment({}, rows_per_batch)
    jobs.orders_in(env, bootstrap, topic).sink_to(DiscardingSink())
    reports = sorted(env.execute("source").get_micro_batches(), key=lambda one: one.published)
    if sum(one.records_in for one in reports) != rows:
        msg = f"read {sum(one.records_in for one in reports)} rows of {rows}"
        raise WrongResultError(msg)
    first, *rest = reports
    phases: dict[str, float] = {}
    for one in rest:
        for name, seconds in one.phases.items():
            phases[name] = phases.get(name, 0.0) + seconds
    return {
        "rows": sum(one.records_in for one in rest),
        "seconds": rest[-1].published - first.published,
        "micro_batches": len(rest),
        "phases": phases,
    }
