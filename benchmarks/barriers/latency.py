"""How long a record is on its way from one stage to the next, beside a streaming query's batch.

Records become due at a low steady rate and go through several keyed steps, an exchange before each.
Every step writes into the record when it saw it: a hop is the time between two steps, and has in
it the rest of the one's micro-batch, its publication, the wait for the other's next micro-batch
and the start of that. The last step's results are collected, and the time of their arrival in the
driver is the end of their way.

What a hop is compared with is the least a query of Spark's Structured Streaming needs for one
exchange: a micro-batch of source, shuffle and a Python step, started as soon as the one before is
done (`streaming_query`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.barriers.paced_source import PacedSource
from benchmarks.job import TaskJob
from benchmarks.micro_batch import parts_of
from benchmarks.report import DASH, Sheet
from benchmarks.results import percentile
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.job.reports import MicroBatchReport

GOAL = 0.5
KEYS = 1_000

Stamps = tuple[float, ...]
"""The record's number, when it was due, and when the source and each step saw it."""


@dataclass(frozen=True)
class LatencyOptions:
    """What the command line decides."""

    rate: float
    steps: int
    seconds: float
    warm_up: float
    parallelism: int


def jobs(options: LatencyOptions) -> Iterator[TaskJob]:
    """The hops, and the query that they are compared with."""
    times = {"seconds": options.seconds, "warm_up": options.warm_up}
    given = {"rate": options.rate, "steps": options.steps, "parallelism": options.parallelism}
    yield TaskJob("barriers.latency:run", {**given, **times})
    yield TaskJob("barriers.streaming_query:run", {"rate": options.rate, **times})


class Seen(KeyedProcessFunction[int, Stamps, Stamps]):
    """Write the time into the record; the state makes it a step as jobs have them."""

    def __init__(self, place: int) -> None:
        self._place = place

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Stamps, ctx: Any) -> Iterator[Stamps]:
        self._seen.update((self._seen.value() or 0) + 1)
        yield stamped(value, self._place)


def stamped(record: Stamps, place: int) -> Stamps:
    return (*record[:place], time.time(), *record[place + 1 :])


def run(
    rate: float, steps: int, seconds: float, warm_up: float, parallelism: int
) -> dict[str, Any]:
    """Run the pipeline for some seconds after a warm-up; return the seconds by hop."""
    source = PacedSource(rate, round(rate * (seconds + warm_up)))
    with pipeline(source, steps, parallelism).execute_and_collect() as results:
        arrived = [(record, time.time()) for record in results]
        reports = results.get_micro_batches()
    begins = min(record[1] for record, _ in arrived) + warm_up
    counted = [one for one in arrived if one[0][1] >= begins]
    hops = hops_of([record for record, _ in counted], steps)
    late = [record[2] - record[1] for record, _ in counted]
    whole = [at - record[1] for record, at in counted]
    print(f"{len(counted)} records, end to end p50 {percentile(whole, 50) * 1000:.0f} ms")
    return {
        "records": len(counted),
        "hops": hops,
        "until_source": late,
        "end_to_end": whole,
        "parts": parts_by_stage(reports, begins),
    }


def pipeline(source: PacedSource, steps: int, parallelism: int) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(parallelism)
    record = Types.TUPLE([Types.LONG(), *[Types.DOUBLE()] * (steps + 2)])
    empty = (0.0,) * (steps + 1)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "paced").map(
        lambda one: stamped((*one, *empty), 2), output_type=record
    )
    for step in range(1, steps + 1):
        # Another key at each step: what one subtask had goes to all subtasks of the next.
        stream = (
            stream.key_by(partial(_key, step), key_type=Types.LONG())
            .process(Seen(step + 2), output_type=record)
            .name(f"step {step}")
            .uid(f"step-{step}")
        )
    return stream


def _key(step: int, record: Stamps) -> int:
    return int(record[0]) * step % KEYS


def hops_of(records: Sequence[Stamps], steps: int) -> list[list[float]]:
    """Per hop, the seconds each record took."""
    return [
        [record[step + 2] - record[step + 1] for record in records] for step in range(1, steps + 1)
    ]


def parts_by_stage(reports: Sequence[MicroBatchReport], since: float) -> list[dict[str, Any]]:
    """Where the time of each stage's micro-batches went, in milliseconds."""
    found = []
    for stage in sorted({one.stage for one in reports}):
        mine = [one for one in reports if one.stage == stage and one.started >= since]
        if mine:
            parts = {part.name: part.milliseconds for part in parts_of(mine)}
            found.append({"stage": mine[0].stage_name, "micro_batches": len(mine), **parts})
    return found


def sheets(measured: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> Iterator[Sheet]:
    """Hops beside the query, and where the time of their micro-batches goes."""
    ours = next((found for _, found in measured if "hops" in found), None)
    query = next((found["micro_batches"] for _, found in measured if "rows" in found), None)
    rows = []
    if ours is not None:
        hops = ours["hops"]
        rows += [_row(f"hop {number}", hop, query) for number, hop in enumerate(hops, 1)]
        rows.append(_row("all hops", [seconds for hop in hops for seconds in hop], query))
        rows.append(_row("end to end", ours["end_to_end"], None))
    if query is not None:
        rows.append(_row("micro-batch of a streaming query", query, None))
    columns = ("path", "p50 ms", "p99 ms", f"p50 / the query's (goal: {GOAL:g})", "count")
    yield Sheet("Latency per hop", columns, rows)
    if ours is not None:
        names = list(dict.fromkeys(name for part in ours["parts"] for name in part))
        yield Sheet(
            "Where the time of its micro-batches goes, ms",
            [name.replace("_", "-") for name in names],
            [[_cell(part.get(name)) for name in names] for part in ours["parts"]],
        )


def _row(title: str, seconds: Sequence[float], query: Sequence[float] | None) -> list[str]:
    middle = percentile(seconds, 50)
    marks = [f"{percentile(seconds, percent) * 1000:,.0f}" for percent in (50, 99)]
    ratio = DASH if query is None else f"{middle / percentile(query, 50):.2f}"
    return [title, *marks, ratio, f"{len(seconds):,}"]


def _cell(value: Any) -> str:
    return DASH if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)
