"""Show the results of a run, as a table for the terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.plan import BASELINES
from benchmarks.results import KeyedResult, Results, percentile

DASH = "-"
LEGEND = (
    "* how many times as fast as transformWithState: with the same function, which reads and "
    "writes state for each record; and rewritten to touch it once per key and micro-batch"
)


@dataclass(frozen=True)
class Sheet:
    """A table before anyone has decided how to draw it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def sheets(results: Results) -> Iterator[Sheet]:
    for keys in sorted({result.keys for result in results.keyed}):
        yield _keyed_sheet(results, keys)
    if results.fixed:
        yield _fixed_sheet(results)


def print_tables(results: Results, console: Console) -> None:
    for sheet in sheets(results):
        table = Table(title=sheet.title, title_justify="left")
        for number, column in enumerate(sheet.columns):
            table.add_column(column, justify="right" if number else "left")
        for row in sheet.rows:
            table.add_row(*row)
        console.print(table)
    console.print(LEGEND, highlight=False)
    for label, reason in results.failures.items():
        console.print(f"[red]failed[/red] {label}: ", end="")
        console.print(reason, markup=False)


def markdown(results: Results) -> str:
    parts = [", ".join(f"{name} {value}" for name, value in results.machine.items())]
    parts += map(markdown_sheet, sheets(results))
    parts.append(LEGEND.replace("*", "\\*"))
    parts += [f"Failed: {label}: {reason}" for label, reason in results.failures.items()]
    return "\n\n".join(parts)


def markdown_sheet(sheet: Sheet) -> str:
    lines = [_markdown_row(sheet.columns), _markdown_row(["---", *_rights(sheet)])]
    lines += [_markdown_row(row) for row in sheet.rows]
    return f"### {sheet.title}\n\n" + "\n".join(lines)


def _keyed_sheet(results: Results, keys: int) -> Sheet:
    bases = [results.rate(keys, name) for name in BASELINES]
    rows = [_keyed_row(result, bases) for result in results.keyed if result.keys == keys]
    columns = (
        "count per key",
        "rows/s",
        "rounds",
        "x per record*",
        "x per key*",
        "batch rows",
        "worker MB",
        "JVM MB",
    )
    return Sheet(f"Steady state, {keys:,} keys", columns, rows)


def _keyed_row(result: KeyedResult, bases: Sequence[float | None]) -> list[str]:
    batched = any(one.micro_batches for one in result.rounds)
    return [
        result.title,
        _count(result.rows_per_second),
        f"{_count(result.slowest)}..{_count(result.fastest)}",
        *(f"{result.rows_per_second / base:.1f}" if base else DASH for base in bases),
        f"{result.rows_per_batch:,}" if batched else DASH,
        _count(result.worker_mb),
        _count(result.jvm_mb),
    ]


def _fixed_sheet(results: Results) -> Sheet:
    rows = []
    for result in results.fixed:
        times = (result.cost.end_to_end_ms, result.cost.micro_batch_ms)
        marks = [
            _count(percentile(values, percent) if values else None)
            for values in times
            for percent in (50, 99)
        ]
        rows.append([result.title, *marks, str(len(result.cost.end_to_end_ms))])
    columns = (
        "one record",
        "end to end p50 ms",
        "p99 ms",
        "micro-batch p50 ms",
        "p99 ms",
        "records",
    )
    return Sheet("Fixed cost of one record", columns, rows)


def _count(value: float | None) -> str:
    return DASH if value is None else f"{value:,.0f}"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rights(sheet: Sheet) -> list[str]:
    return ["---:"] * (len(sheet.columns) - 1)
