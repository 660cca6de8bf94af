"""The results of the connector benchmarks, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from benchmarks.connectors.rows import FROM_KAFKA, JOB, OWN_ROWS, PLAIN
from benchmarks.report import DASH, Sheet
from benchmarks.results import percentile

Measured = Sequence[tuple[dict[str, Any], dict[str, Any]]]

EXACTLY, AT_LEAST = "exactly once", "at least once"
COUNT_GOAL, SOURCE_GOAL, ROWS_GOAL = 0.8, 0.9, 0.5


def count_sheet(measured: Measured) -> Sheet:
    ours, queries = _runs(measured), _queries(measured)
    rates = {
        "penstock, exactly once": _of_kind(ours, EXACTLY),
        "penstock, at least once": _of_kind(ours, AT_LEAST),
        "Spark's own query, at least once": queries.get("count", []),
    }
    base = _middle(rates["penstock, at least once"])
    rows = [[name, _shown(found), _ratio(found, base)] for name, found in rates.items() if found]
    columns = ("Kafka, count per key, Kafka", "rows/s", f"/ at least once (goal: {COUNT_GOAL:g})")
    return Sheet("Kafka to Kafka", columns, rows)


def source_sheet(measured: Measured) -> Sheet:
    queries = _queries(measured)
    rates = {
        "penstock, to a function in Python": [_rate(one) for one in _runs(measured)],
        "Spark's own query, to a function in Python": queries.get("to_python", []),
        "Spark's own query, JVM only": queries.get("in_jvm", []),
    }
    base = _middle(rates["Spark's own query, to a function in Python"])
    rows = [[name, _shown(found), _ratio(found, base)] for name, found in rates.items() if found]
    columns = ("read from Kafka", "rows/s", f"/ Spark's own in Python (goal: {SOURCE_GOAL:g})")
    return Sheet("The Kafka source alone", columns, rows)


def rows_sheet(measured: Measured) -> Sheet:
    runs = _runs(measured)
    rates = {
        "penstock, Kafka to PostgreSQL, exactly once": _of_kind(runs, JOB),
        "plain psycopg, Kafka to PostgreSQL, COPY": _of_kind(runs, FROM_KAFKA),
        "penstock, its own rows to PostgreSQL, exactly once": _of_kind(runs, OWN_ROWS),
        "plain psycopg, memory to PostgreSQL, COPY": _of_kind(runs, PLAIN),
    }
    base = _middle(_of_kind(runs, PLAIN))
    rows = [[name, _shown(found), _ratio(found, base)] for name, found in rates.items() if found]
    columns = ("rows into PostgreSQL", "rows/s", f"/ plain COPY (goal: {ROWS_GOAL:g})")
    return Sheet("Kafka to PostgreSQL", columns, rows)


def visible_sheet(measured: Measured) -> Sheet:
    columns = (
        "visible in",
        "since complete p50 ms",
        "p99 ms",
        "since triggered p50 ms",
        "p99 ms",
        "since sent p50 ms",
        "p99 ms",
        "records",
    )
    rows = [row for _, found in measured for row in _visible_rows(found)]
    return Sheet("How soon it is seen, a checkpoint every second", columns, rows)


def _visible_rows(found: dict[str, Any]) -> Iterator[list[str]]:
    titles = {"topic": "a topic, read_committed", "table": "a table, SELECT"}
    for place, title in titles.items():
        times = found[place]
        marks = [
            f"{percentile(times[kind], percent) * 1000:,.0f}"
            for kind in ("since_complete", "since_triggered", "end_to_end")
            for percent in (50, 99)
        ]
        yield [title, *marks, f"{len(times['end_to_end']):,}"]


def _runs(measured: Measured) -> list[dict[str, Any]]:
    return [one for _, found in measured for one in found.get("runs", [])]


def _queries(measured: Measured) -> dict[str, list[float]]:
    return {
        name: [_rate(one) for one in runs]
        for _, found in measured
        for name, runs in found.get("queries", {}).items()
    }


def _of_kind(runs: Sequence[dict[str, Any]], kind: str) -> list[float]:
    return [_rate(one) for one in runs if one["kind"] == kind]


def _rate(run: dict[str, Any]) -> float:
    return float(run["rows"]) / float(run["seconds"])


def _middle(rates: Sequence[float]) -> float | None:
    return median(rates) if rates else None


def _ratio(rates: Sequence[float], base: float | None) -> str:
    return DASH if base is None else f"{median(rates) / base:.2f}"


def _shown(rates: Sequence[float]) -> str:
    if len(rates) == 1:
        return f"{rates[0]:,.0f}"
    return f"{median(rates):,.0f} ({min(rates):,.0f}..{max(rates):,.0f})"
