"""The fixed cost of a record on penstock: the same chain, driven by the same dropped files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.contract import FixedCost
from benchmarks.fixed_cost import Dropbox, send
from benchmarks.penstock_keyed import KEYED_STEP, Count
from penstock.common import Configuration, Duration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.job.reports import MicroBatchReport

POLL_MS = 1


@dataclass(frozen=True)
class PenstockChain:
    """Watched directory, channel by key, keyed process function; results collected."""

    def measure(self, records: int, warm_up: int) -> FixedCost:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
            dropbox = Dropbox.under(directory)
            with updates(dropbox).execute_and_collect() as results:
                taken = send(dropbox, lambda: next(results)[0], records, warm_up)
                micro_batches = micro_batch_ms(results.get_micro_batches(), warm_up)
        return FixedCost(taken, micro_batches)


def updates(dropbox: Dropbox) -> Any:
    """Words dropped into a directory, every (word, seen) out."""
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    lines = StreamFormat.text_line_format()
    source = (
        FileSource.for_record_stream_format(lines, str(dropbox.directory))
        .monitor_continuously(Duration.of_millis(POLL_MS))
        .build()
    )
    words = env.from_source(source, WatermarkStrategy.no_watermarks(), "words")
    return (
        words.key_by(lambda word: word, key_type=Types.STRING())
        .process(Count(), output_type=Types.TUPLE([Types.STRING(), Types.LONG()]))
        .name(KEYED_STEP)
        .uid(KEYED_STEP)
    )


def micro_batch_ms(reports: Sequence[MicroBatchReport], warm_up: int) -> Sequence[float]:
    """Per record, how long its micro-batches ran, all stages added up."""
    by_stage: dict[str, list[float]] = {}
    for report in reports:
        if report.records_in:
            by_stage.setdefault(report.stage_name, []).append(report.seconds * 1000)
    return [sum(took) for took in list(zip(*by_stage.values(), strict=False))[warm_up:]]


CONTENDER = PenstockChain()
