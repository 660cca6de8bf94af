"""The table of a run: medians over its rounds, and how many times as fast penstock is."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.nexmark.plan import HASHMAP, PYFLINK, QUERIES, ROCKSDB, SPARK, Engine, Run
from benchmarks.report import DASH, Sheet

PYFLINK_GOAL = 10
SPARK_GOAL = 0.5
SPARK_GOAL_OF = ("q5", "q7")
SHOWN = (HASHMAP, ROCKSDB, PYFLINK, SPARK)
PAIRS = ((HASHMAP, PYFLINK), (ROCKSDB, PYFLINK), (HASHMAP, SPARK), (ROCKSDB, SPARK))


def sheet(runs: Sequence[Run]) -> Sheet:
    """Events per second of every query and engine."""
    columns = (
        "events/s",
        *(engine.title for engine in SHOWN),
        f"hashmap / PyFlink (goal: {PYFLINK_GOAL})",
        f"rocksdb / PyFlink (goal: {PYFLINK_GOAL})",
        f"hashmap / Spark (goal: {SPARK_GOAL} for {' and '.join(SPARK_GOAL_OF)})",
        "rocksdb / Spark",
    )
    queries = [query for query in QUERIES if any(run.query == query for run in runs)]
    return Sheet("NEXMark", columns, [_row(query, runs) for query in queries])


def _row(query: str, runs: Sequence[Run]) -> list[str]:
    rates = [_rate(query, engine, runs) for engine in SHOWN]
    ratios = [(_rate(query, one, runs), _rate(query, other, runs)) for one, other in PAIRS]
    return [
        query,
        *(DASH if rate is None else f"{rate:,.0f}" for rate in rates),
        *(DASH if one is None or other is None else f"{one / other:.2f}" for one, other in ratios),
    ]


def _rate(query: str, engine: Engine, runs: Sequence[Run]) -> float | None:
    mine = [r.events_per_second for r in runs if (r.query, r.engine) == (query, engine.name)]
    return median(mine) if mine else None
