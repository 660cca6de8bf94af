"""penstock: a keyed process function with a value state, as a PyFlink user would write it.

Stages run concurrently and the source may read ahead, so the
steady rate is taken over the whole chain: all rows but those of the first micro-batch, over the
time from the publication of the source's first micro-batch to that of the last keyed one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.contract import Answer, Measurement, verify_rows
from benchmarks.memory import MemorySampler
from benchmarks.workload import Workload
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.connectors.discard import DiscardingSink
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.job.reports import MicroBatchReport

KEYED_STEP = "count"


class Count(KeyedProcessFunction[str, str, tuple[str, int]]):
    """Count the records of each key and hand on every update."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[str, int]]:
        seen = (self._seen.value() or 0) + 1
        self._seen.update(seen)
        yield value, seen


@dataclass(frozen=True)
class PenstockContender:
    """The count as a penstock job."""

    backend: str
    emits_every_update: bool = True

    def check(self, workload: Workload) -> Answer:
        counts: dict[str, int] = {}
        emitted = 0
        env = environment(workload, self.backend)
        with self.updates(env, str(workload.directory)).execute_and_collect() as results:
            for word, seen in results:
                counts[word] = max(seen, counts.get(word, 0))
                emitted += 1
        return Answer(counts, emitted)

    def measure(self, workload: Workload) -> Measurement:
        env = environment(workload, self.backend)
        self.updates(env, str(workload.directory)).sink_to(DiscardingSink())
        with MemorySampler() as memory:
            reports = env.execute("count per key").get_micro_batches()
        return steady(reports, workload, memory)

    def updates(self, env: StreamExecutionEnvironment, directory: str) -> Any:
        """Words in, every (word, seen) out."""
        return updates(env, directory)


def environment(workload: Workload, backend: str = "hashmap") -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(configuration(workload, backend))


def configuration(workload: Workload, backend: str) -> Configuration:
    config = Configuration()
    # The same micro-batches as the others get, in place of sizes that follow the clock.
    config.set_string("penstock.micro-batch.initial-records", str(workload.rows_per_batch))
    config.set_string("penstock.micro-batch.max-records", str(workload.rows_per_batch))
    config.set_string("penstock.micro-batch.target-duration", "10 min")
    config.set_string("state.backend.type", backend)
    return config


def words(env: StreamExecutionEnvironment, directory: str) -> DataStream:
    """The lines of all files."""
    lines = StreamFormat.text_line_format()
    source = FileSource.for_record_stream_format(lines, directory).build()
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "words")


def updates(env: StreamExecutionEnvironment, directory: str) -> Any:
    """Words in, every (word, seen) out."""
    return (
        words(env, directory)
        .key_by(lambda word: word, key_type=Types.STRING())
        .process(Count(), output_type=Types.TUPLE([Types.STRING(), Types.LONG()]))
        .name(KEYED_STEP)
        .uid(KEYED_STEP)
    )


def steady(
    reports: Sequence[MicroBatchReport], workload: Workload, memory: MemorySampler
) -> Measurement:
    """The rate of the whole chain once it runs."""
    fed = sorted((one for one in reports if one.records_in), key=lambda one: one.published)
    keyed = [one for one in fed if KEYED_STEP in one.stage_name]
    source = [one for one in fed if KEYED_STEP not in one.stage_name]
    verify_rows(sum(one.records_in for one in keyed), workload)
    return Measurement(
        rows=workload.rows - source[0].records_in,
        seconds=keyed[-1].published - source[0].published,
        micro_batches=len(keyed),
        peak_worker_memory_mb=memory.peak_worker_mb,
        peak_jvm_memory_mb=memory.peak_jvm_mb,
    )


HASHMAP = PenstockContender("hashmap")
ROCKSDB = PenstockContender("rocksdb")
