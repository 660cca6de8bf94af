"""The PyFlink program on penstock, as it is: `pyflink` means penstock in this process.

Stages run side by side and the source may read ahead, so the time is that of the whole job: from
the publication of the source's first micro-batch, whose events do not count, to that of the last
micro-batch of any stage.
"""

from __future__ import annotations

from typing import Any

from benchmarks.memory import MemorySampler
from benchmarks.nexmark.contract import Timed, verified
from benchmarks.nexmark.events import Events
from penstock.common import Configuration, WatermarkStrategy
from penstock.common.pyflink.import_alias import use_pyflink_names
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.connectors.discard import DiscardingSink
from penstock.datastream.connectors.file_system import FileSource, StreamFormat


def run(
    query: str, check: dict[str, Any], events: dict[str, Any], parallelism: int, backend: str
) -> Timed:
    """Check a query on few events, then time it on many."""
    few, many = Events(**check), Events(**events)
    verified(query, rows_of(query, few, environment(few, parallelism, backend)), few)
    env = environment(many, parallelism, backend)
    stream_of(query, many, env).sink_to(DiscardingSink())
    with MemorySampler() as memory:
        reports = list(env.execute(query).get_micro_batches())
    source = [one for one in reports if one.stage == 0 and one.records_in]
    first = min(source, key=lambda one: one.published)
    all_events = sum(one.records_in for one in source)
    return Timed(
        events=all_events - first.records_in,
        all_events=all_events,
        seconds=max(one.published for one in reports if one.records_in) - first.published,
        worker_mb=memory.peak_worker_mb,
        jvm_mb=memory.peak_jvm_mb,
    )


def environment(events: Events, parallelism: int, backend: str) -> StreamExecutionEnvironment:
    """An environment whose micro-batches are a part for every subtask, as the others get them."""
    records = str(events.events_per_file * parallelism)
    config = Configuration.from_dict(
        {
            "penstock.micro-batch.initial-records": records,
            "penstock.micro-batch.max-records": records,
            "penstock.micro-batch.target-duration": "10 min",
            "state.backend.type": backend,
            "parallelism.default": str(parallelism),
        }
    )
    return StreamExecutionEnvironment.get_execution_environment(config)


def rows_of(query: str, events: Events, env: StreamExecutionEnvironment) -> list[tuple[Any, ...]]:
    """What a query answers."""
    with stream_of(query, events, env).execute_and_collect() as rows:
        return list(rows)


def stream_of(query: str, events: Events, env: StreamExecutionEnvironment) -> DataStream:
    use_pyflink_names()
    from benchmarks.nexmark.queries import QUERIES

    lines = StreamFormat.text_line_format()
    source = FileSource.for_record_stream_format(lines, str(events.parts)).build()
    stream: DataStream = QUERIES[query](
        env.from_source(source, WatermarkStrategy.no_watermarks(), "events")
    )
    return stream
