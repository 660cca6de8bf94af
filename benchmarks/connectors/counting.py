"""Kafka, a count per key, Kafka: exactly once beside at least once, both with checkpoints.

All runs share a process and a JVM and take turns, so that both kinds get equally warm. Each kind
first counts a smaller topic, and what it wrote is compared with a plain count.

The rate is taken over the whole chain: all rows but those of the source's first micro-batch, over
the time from its publication to the end of the job, and so to the moment at which the last of the
results can be read: with the last checkpoint, and the last transaction if there are any.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.connectors import jobs
from benchmarks.connectors.orders import Orders, create_topic, delete_topic, read_topic
from benchmarks.contract import WrongResultError
from penstock.checkpoint.history import CheckpointStatus, History
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.datastream.connectors.base import DeliveryGuarantee
from penstock.ids import JobKey
from penstock.job.reports import MicroBatchReport

GUARANTEES = {
    "exactly once": DeliveryGuarantee.EXACTLY_ONCE,
    "at least once": DeliveryGuarantee.AT_LEAST_ONCE,
}


def run(
    bootstrap: str,
    check: Sequence[Any],
    orders: Sequence[Any],
    keys: int,
    rounds: int,
    rows_per_batch: int,
    interval_s: float,
    directory: str,
) -> dict[str, Any]:
    """Check and then measure both guarantees, in turns; say how fast each run was."""
    settings = {"execution.checkpointing.interval": f"{round(interval_s * 1000)} ms"}
    measure = _Measure(bootstrap, settings, rows_per_batch, Path(directory))
    expected = Orders(check[1], keys).customers()
    for kind in GUARANTEES:
        measure.once(kind, check, expected)
    found = []
    # A, B, B, A: what gets slower or faster with time falls on both.
    turns = list(GUARANTEES)
    for number in range(2 * rounds):
        kind = turns[number % 4 in (1, 2)]
        one = measure.once(kind, orders)
        print(f"{kind}: {one['rows'] / one['seconds']:,.0f} rows/s", flush=True)
        found.append({"kind": kind, **one})
    return {"runs": found}


@dataclass(frozen=True)
class _Measure:
    bootstrap: str
    settings: dict[str, str]
    rows_per_batch: int
    directory: Path

    def once(
        self, kind: str, orders: Sequence[Any], expected: dict[str, int] | None = None
    ) -> dict[str, Any]:
        """Count one topic into another one, which is read only if an answer is expected."""
        topic, rows = orders
        shutil.rmtree(self.directory, ignore_errors=True)
        to = f"counts-{time.monotonic_ns()}"
        create_topic(self.bootstrap, to)
        more = {"execution.checkpointing.dir": str(self.directory), "penstock.job-id": to}
        env = jobs.environment({**self.settings, **more}, self.rows_per_batch)
        counted = jobs.counts(jobs.orders_in(env, self.bootstrap, topic))
        counted.sink_to(jobs.sink_of_counts(self.bootstrap, to, GUARANTEES[kind]))
        reports = list(env.execute(to).get_micro_batches())
        ended = time.time()
        known = History(JobDir(self.directory, JobKey(to)).storage).checkpoints()
        completed = [one for one in known if one.status is CheckpointStatus.COMPLETED]
        try:
            _check_rows(reports, rows)
            if expected is not None:
                check_counts(self.bootstrap, to, expected, rows)
        finally:
            delete_topic(self.bootstrap, to)
            shutil.rmtree(self.directory, ignore_errors=True)
        first = min((one for one in reports if one.stage == 0), key=lambda one: one.published)
        return {
            "rows": rows - first.records_in,
            "seconds": ended - first.published,
            "last_published": max(one.published for one in reports) - first.published,
            "durations": [one.duration_s for one in completed],
        }


def _check_rows(reports: Sequence[MicroBatchReport], rows: int) -> None:
    processed = sum(one.records_in for one in reports if jobs.COUNT in one.stage_name)
    if processed != rows:
        msg = f"processed {processed} rows of {rows}"
        raise WrongResultError(msg)


def check_counts(
    bootstrap: str, topic: str, expected: dict[str, int], rows: int | None = None
) -> None:
    """Compare the highest count of each key with a plain count, and how many there are."""
    highest: dict[str, int] = {}
    messages = 0
    for records in read_topic(bootstrap, topic):
        for key, value in records:
            word, seen = key.decode(), int(value)
            highest[word] = max(seen, highest.get(word, 0))
            messages += 1
    if highest != expected:
        wrong = sum(1 for key in expected if highest.get(key) != expected[key])
        msg = f"{wrong} of {len(expected)} keys are wrong in {topic}"
        raise WrongResultError(msg)
    if rows is not None and messages != rows:
        msg = f"{messages} messages in {topic} for {rows} rows"
        raise WrongResultError(msg)
