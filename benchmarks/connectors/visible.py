"""How soon the output of a checkpoint is visible: in a topic, and in a table.

Records come at a low steady rate, and go through one keyed step into Kafka and PostgreSQL, both
exactly once, with a checkpoint every second. Another process sends them and sees them again, as
any reader would: a consumer with `read_committed`, and SELECT. What is seen belongs to the last
checkpoint that was complete by then; when that was, and when it was triggered, the job writes down.
"""

from __future__ import annotations

import shutil
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.connectors import jobs
from benchmarks.connectors.observer import KEYS, Observer, Places, Sightings
from benchmarks.connectors.orders import create_topic, delete_topic
from benchmarks.running_job import RunningJob
from penstock.checkpoint.event_log import CheckpointEvent
from penstock.checkpoint.history import CheckpointStats
from penstock.common import SerializationSchema, SimpleStringSchema, Types, WatermarkStrategy
from penstock.datastream.connectors.base import DeliveryGuarantee
from penstock.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from penstock.datastream.connectors.postgres import PostgresSink
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
Pair = tuple[int, int]  # key, number


class Seen(KeyedProcessFunction[int, Pair, Pair]):
    """Count, so that there is state, and hand on."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Pair, ctx: Any) -> Iterator[Pair]:
        self._seen.update((self._seen.value() or 0) + 1)
        yield value


class KeyOf(SerializationSchema):
    def serialize(self, element: Pair) -> bytes:
        return b"%d" % element[0]


class NumberOf(SerializationSchema):
    def serialize(self, element: Pair) -> bytes:
        return b"%d" % element[1]


@dataclass(frozen=True)
class Moments:
    """When a checkpoint was triggered and when it was complete."""

    triggered: float
    completed: float


def run(
    bootstrap: str,
    dsn: str,
    rate: float,
    seconds: float,
    warm_up: float,
    interval_s: float,
    directory: str,
) -> dict[str, Any]:
    """Run the job at a steady rate; return the seconds of each record after the warm-up."""
    name = f"visible_{time.monotonic_ns()}"
    places = Places(bootstrap, f"{name}-from", f"{name}-to", dsn, name)
    create_topic(bootstrap, places.from_topic)
    create_topic(bootstrap, places.to_topic)
    with psycopg.connect(dsn) as connection:
        connection.execute(f"CREATE TABLE {name} (key bigint, number bigint)")
        connection.execute(f"CREATE INDEX ON {name} (key, number)")
    shutil.rmtree(directory, ignore_errors=True)
    job = start(places, interval_s, Path(directory), name)
    try:
        observer = Observer(places, rate, KEYS + round(rate * (seconds + warm_up)))
        found = observer.result()
        job.check()
        moments = list(map(moments_of, job.checkpoints()))
    finally:
        job.cancel()
        shutil.rmtree(directory, ignore_errors=True)
        delete_topic(bootstrap, places.from_topic)
        delete_topic(bootstrap, places.to_topic)
    times = latencies(found, moments, warm_up)
    print(f"{len(times['topic']['end_to_end'])} records, {len(moments)} checkpoints", flush=True)
    return {**times, "checkpoints": [asdict(one) for one in moments]}


def start(places: Places, interval_s: float, directory: Path, job_id: str) -> RunningJob:
    settings = {
        "execution.checkpointing.interval": f"{round(interval_s * 1000)} ms",
        "execution.checkpointing.dir": str(directory),
        "penstock.job-id": job_id,
    }
    env = jobs.environment(settings, rows_per_batch=10_000)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(places.bootstrap)
        .set_topics(places.from_topic)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    records = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(places.to_topic)
        .set_key_serialization_schema(KeyOf())
        .set_value_serialization_schema(NumberOf())
        .build()
    )
    topic = (
        KafkaSink.builder()
        .set_bootstrap_servers(places.bootstrap)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(job_id)
        .set_record_serializer(records)
        .build()
    )
    table = PostgresSink.builder().set_dsn(places.dsn).set_table(places.table)
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "paced").uid("paced")
    pairs = lines.map(lambda text: (int(text) % KEYS, int(text)), output_type=PAIR)
    keyed = pairs.key_by(lambda pair: pair[0], key_type=Types.LONG())
    seen = keyed.process(Seen(), output_type=PAIR).name("seen").uid("seen")
    seen.sink_to(topic).uid("topic")
    seen.sink_to(table.set_columns("key", "number").build()).uid("table")
    return RunningJob(env.execute_async(job_id), directory, job_id)


def moments_of(checkpoint: CheckpointStats) -> Moments:
    times = {line.event: line.time for line in checkpoint.events}
    completed = checkpoint.triggered + checkpoint.duration_s
    return Moments(checkpoint.triggered, times.get(CheckpointEvent.COMPLETED, completed))


def latencies(
    found: Sightings, moments: Sequence[Moments], warm_up: float
) -> dict[str, dict[str, list[float]]]:
    """By place: the seconds since the checkpoint was complete, was triggered, and in all."""
    begins = found.sent[KEYS] + warm_up
    return {
        place: _latencies(
            [pair for pair in zip(found.sent, seen, strict=True) if pair[0] >= begins], moments
        )
        for place, seen in {"topic": found.in_topic, "table": found.in_table}.items()
    }


def _latencies(
    counted: Sequence[tuple[float, float]], moments: Sequence[Moments]
) -> dict[str, list[float]]:
    ordered = sorted(moments, key=lambda one: one.completed)
    completions = [one.completed for one in ordered]
    since = [ordered[bisect_right(completions, seen) - 1] for _, seen in counted]
    pairs = list(zip(counted, since, strict=True))
    return {
        "since_complete": [seen - one.completed for (_, seen), one in pairs],
        "since_triggered": [seen - one.triggered for (_, seen), one in pairs],
        "end_to_end": [seen - sent for sent, seen in counted],
    }
