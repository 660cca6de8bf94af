"""The fixed cost of a micro-batch on Structured Streaming: one record through the whole chain.

A file with one line is dropped into a watched directory; the clock stops when the result is in the
driver's hands. The query polls as fast as it can. What the micro-batch itself took comes from the
query's progress (`triggerExecution`).

`STRUCTURED` is source, shuffle and a Python step with a dict: the same chain without durable state.
`STATEFUL` is source, shuffle and `transformWithState`.
"""

from __future__ import annotations

import os
import queue
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks import bare_loop
from benchmarks.contract import FixedCost
from benchmarks.structured import session

PATIENCE = 120.0


@dataclass(frozen=True)
class Dropbox:
    """A watched directory that gets one record at a time, whole or not at all."""

    directory: Path

    @classmethod
    def under(cls, parent: str) -> Dropbox:
        directory = Path(parent, "records")
        directory.mkdir()
        return cls(directory)

    def drop(self, number: int) -> str:
        """Make one record available, under a new key, and return the key."""
        key = f"k{number:07d}"
        # Written next to the watched directory, then moved into it.
        draft = self.directory.with_name(f"{key}.draft")
        draft.write_text(f"{key}\n")
        os.rename(draft, self.directory / f"{key}.txt")  # noqa: PTH104
        return key


def send(dropbox: Dropbox, receive: Callable[[], str], records: int, warm_up: int) -> list[float]:
    """Send records one after the other; the milliseconds each took, warm-up left out."""
    taken = []
    for number in range(warm_up + records):
        started = time.perf_counter()
        sent = dropbox.drop(number)
        while receive() != sent:
            pass
        taken.append((time.perf_counter() - started) * 1000)
    return taken[warm_up:]


@dataclass(frozen=True)
class StructuredChain:
    """File source, shuffle by key, Python step; results collected in `foreachBatch`."""

    build: Callable[[DataFrame], DataFrame]
    output_mode: str
    settings: dict[str, str] = field(default_factory=dict)

    def measure(self, records: int, warm_up: int) -> FixedCost:
        results: queue.Queue[str] = queue.Queue()

        def keep(batch: DataFrame, batch_id: int) -> None:
            for word, _ in batch.collect():
                results.put(word)

        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
            dropbox = Dropbox.under(directory)
            lines = session(self.settings).readStream.text(str(dropbox.directory))
            query = (
                self.build(lines.withColumnRenamed("value", "word"))
                .writeStream.foreachBatch(keep)
                .outputMode(self.output_mode)
                .option("checkpointLocation", str(Path(directory, "checkpoint")))
                .trigger(processingTime="0 seconds")
                .start()
            )
            try:
                taken = send(dropbox, lambda: results.get(timeout=PATIENCE), records, warm_up)
                query.processAllAvailable()
                fed = [report for report in query.recentProgress if report.numInputRows]
            finally:
                query.stop()
        triggers = [float(report.durationMs["triggerExecution"]) for report in fed]
        return FixedCost(taken, triggers[warm_up:])


STRUCTURED = StructuredChain(bare_loop.build, "append")
