"""What checkpoints cost, by the size of the state and by how much of it changed.

One process per backend, variant and size. Incremental and full jobs see the same changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkpoints import stopwatches as parts
from benchmarks.checkpoints.chart import Chart, Line, svg
from benchmarks.checkpoints.measured import CheckpointCost, Costs, Series, find
from benchmarks.checkpoints.rounds import FULL, INCREMENTAL
from benchmarks.job import TaskJob
from benchmarks.report import DASH, Sheet

MEGABYTES = (10.0, 50.0, 100.0, 200.0, 1000.0)
SHARES = (0.001, 0.01, 0.1, 1.0)
TYPICAL = 0.01
"""The share at which incremental and full checkpoints are compared."""
LARGEST_HASHMAP_MB = 200.0
FEW_ROUNDS = 3


@dataclass(frozen=True)
class CostOptions:
    """What the command line decides."""

    backends: Sequence[str]
    megabytes: Sequence[float]
    shares: Sequence[float]
    value_bytes: int
    settling: int
    rounds: int
    directory: Path


def jobs(options: CostOptions) -> Iterator[TaskJob]:
    """Smaller states first; the two variants of a size one after the other."""
    for megabytes in sorted(options.megabytes):
        for backend in options.backends:
            if backend == "hashmap" and megabytes > LARGEST_HASHMAP_MB:
                continue
            for variant in (FULL, INCREMENTAL):
                yield _job(options, backend, variant, megabytes)


def _job(options: CostOptions, backend: str, variant: str, megabytes: float) -> TaskJob:
    shares = [TYPICAL] if variant == FULL else sorted({*options.shares, TYPICAL})
    few = min(FEW_ROUNDS, options.rounds)
    return TaskJob(
        "checkpoints.rounds:run",
        {
            "backend": backend,
            "variant": variant,
            "megabytes": megabytes,
            "value_bytes": options.value_bytes,
            "settling": options.settling,
            # Large states take long, and vary little from one round to the next.
            "shares": [
                (share, options.rounds if share == TYPICAL and variant != FULL else few)
                for share in shares
            ],
            "directory": str(options.directory / "cost"),
        },
    )


def sheets(series: Sequence[Series]) -> Iterator[Sheet]:
    if not series:
        return
    yield _against_full(series)
    for backend in sorted({one.backend for one in series}):
        yield _by_change(series, backend)
    yield profile(series)


def _against_full(series: Sequence[Series]) -> Sheet:
    rows = []
    for one in series:
        if one.variant != INCREMENTAL:
            continue
        mine, full = one.at(TYPICAL), _full(series, one)
        if not mine or not full:
            continue
        rows.append(
            [
                f"{one.backend}, {one.megabytes:,.0f} MB",
                _mb(full.bytes),
                _seconds(full.seconds),
                _mb(mine.bytes),
                _mb(mine.mean_bytes),
                _seconds(mine.seconds),
                f"{mine.bytes / full.bytes:.1%}",
                f"{mine.mean_bytes / full.bytes:.1%}",
                f"{mine.seconds / full.seconds:.0%}",
                f"{mine.own_seconds / full.own_seconds:.0%}",
            ]
        )
    columns = (
        "state",
        "full MB",
        "full s",
        "incremental MB",
        "mean MB",
        "incremental s",
        "bytes",
        "mean bytes",
        "time",
        "own time",
    )
    return Sheet(f"Incremental beside full, {TYPICAL:.0%} of the keys changed", columns, rows)


def _by_change(series: Sequence[Series], backend: str) -> Sheet:
    mine = [s for s in series if s.backend == backend and s.variant == INCREMENTAL]
    shares = sorted({share for s in mine for share in s.shares})
    rows = []
    for one in mine:
        full = _full(series, one)
        rows.append(
            [
                f"{one.megabytes:,.0f} MB",
                *(_cell(one.at(share)) for share in shares),
                _cell(full) if full else DASH,
            ]
        )
    columns = ("state", *map(_percent, shares), "full")
    return Sheet(f"{backend}: MB written and seconds, by keys changed", columns, rows)


def profile(series: Sequence[Series]) -> Sheet:
    """Where the time of a checkpoint goes, at the largest state of each backend."""
    largest = {
        backend: max(s.megabytes for s in series if s.backend == backend)
        for backend in sorted({s.backend for s in series})
    }
    columns = ["part, ms"]
    measured: list[Costs] = []
    for backend, megabytes in largest.items():
        for variant in (FULL, INCREMENTAL):
            found = find(series, backend, variant, megabytes)
            if found is not None and found.at(TYPICAL):
                columns.append(f"{backend} {variant}, {megabytes:,.0f} MB")
                measured.append(found.at(TYPICAL))
    rows = [
        [name, *(f"{costs.median_of(value) * 1000:,.1f}" for costs in measured)]
        for name, value in _PARTS
    ]
    return Sheet(f"Where the time goes, {TYPICAL:.0%} of the keys changed", columns, rows)


def chart(series: Sequence[Series], backend: str) -> str | None:
    """Bytes and seconds against the size of the state, a line per share; None if there is one."""
    mine = [s for s in series if s.backend == backend and s.variant == INCREMENTAL]
    if len(mine) < 2:
        return None
    shares = sorted({share for s in mine for share in s.shares})

    def lines(value: str) -> list[Line]:
        drawn = [
            Line(
                f"{_percent(share)} changed",
                [(s.megabytes, getattr(s.at(share), value)) for s in mine if s.at(share)],
            )
            for share in shares
        ]
        full = [(s.megabytes, _full(series, s)) for s in mine]
        points = [(megabytes, getattr(costs, value)) for megabytes, costs in full if costs]
        return [*drawn, Line("full", points, dashed=True)] if points else drawn

    return svg(
        [
            Chart(f"{backend}: MB written", "state, MB", "MB", _in_mb(lines("bytes"))),
            Chart(f"{backend}: seconds", "state, MB", "s", lines("seconds")),
        ]
    )


def _in_mb(lines: Sequence[Line]) -> list[Line]:
    return [Line(one.name, [(x, y / 1e6) for x, y in one.points], one.dashed) for one in lines]


def _full(series: Sequence[Series], one: Series) -> Costs | None:
    found = find(series, one.backend, FULL, one.megabytes)
    return None if found is None else found.at(TYPICAL) or None


_PARTS: tuple[tuple[str, Callable[[CheckpointCost], float]], ...] = (
    ("micro-batches that ran when it was triggered", lambda one: one.start_delay_s),
    ("micro-batch up to the barrier", lambda one: one.alignment_s),
    ("- of it, a task's local snapshot", lambda one: one.snapshot_s),
    ("freeze (the stage waits)", lambda one: one.parts.get(parts.FREEZE, 0.0)),
    ("upload, a Spark job", lambda one: one.parts.get(parts.UPLOAD, 0.0)),
    ("fsync", lambda one: one.parts.get(parts.SYNC, 0.0)),
    ("read back, checksums", lambda one: one.parts.get(parts.VERIFY, 0.0)),
    ("metadata, written and read back", lambda one: one.parts.get(parts.METADATA, 0.0)),
    ("journal", lambda one: one.parts.get(parts.JOURNAL, 0.0)),
    ("delete unneeded files", lambda one: one.parts.get(parts.DELETE, 0.0)),
    ("all", lambda one: one.duration_s),
)


def _cell(costs: Costs) -> str:
    return f"{_mb(costs.bytes)} / {_seconds(costs.seconds)}" if costs else DASH


def _percent(share: float) -> str:
    return f"{share * 100:g} %"


def _mb(number: float) -> str:
    return f"{number / 1e6:,.1f}" if number < 1e8 else f"{number / 1e6:,.0f}"


def _seconds(number: float) -> str:
    return f"{number:.2f}"
