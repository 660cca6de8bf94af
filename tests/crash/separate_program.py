"""The job on hosts that share nothing: `python -m tests.crash.separate_program SHAPE.json`.

Kafka → a running count per word, and counts per word and second → two tables of PostgreSQL.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from penstock.common import Configuration, Duration, Row, Time, Types, WatermarkStrategy
from penstock.common.serialization import SimpleStringSchema
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from penstock.datastream.connectors.postgres import PostgresSink
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows

JOB = "separate"
WORDS = 97
SECOND = 1_000
STEP_MS = 5
"""Between two records of a partition, in event time."""
NOTE = "n" * 800
"""Makes staged rows too large for the messages between driver and tasks."""

TEXT, LONG = Types.STRING(), Types.LONG()
WORD = Types.TUPLE([LONG, TEXT])
COUNT = Types.ROW_NAMED(["word", "n", "note"], [TEXT, LONG, TEXT])
WINDOW = Types.ROW_NAMED(["word", "second", "n"], [TEXT, LONG, LONG])


class Shape(msgspec.Struct, frozen=True):
    """What a run looks like."""

    directory: str
    bootstrap: str
    topic: str
    dsn: str
    settings: dict[str, str]
    spark: bool = True


def line(number: int, partition: int) -> str:
    """Return a record of the topic: its time and a word."""
    return f"{number * STEP_MS} word-{(number * 31 + partition * 17) % WORDS}"


def expected(per_partition: int, partitions: int) -> tuple[Counter[str], Counter[tuple[str, int]]]:
    """Return the counts per word, and per word and second."""
    words: Counter[str] = Counter()
    windows: Counter[tuple[str, int]] = Counter()
    for number in range(per_partition):
        for partition in range(partitions):
            at, word = line(number, partition).split()
            words[word] += 1
            windows[word, int(at) // SECOND] += 1
    return words, windows


class TimeOf(TimestampAssigner):
    def extract_timestamp(self, value: tuple[int, str], record_timestamp: int) -> int:
        return value[0]


class CountUp(KeyedProcessFunction[str, tuple[int, str], Row]):
    """Emits how often a word has come so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._n = runtime_context.get_state(ValueStateDescriptor("n", LONG))

    def process_element(
        self, value: tuple[int, str], ctx: KeyedProcessFunction.Context
    ) -> Iterable[Row]:
        n = (self._n.value() or 0) + 1
        self._n.update(n)
        yield Row(word=value[1], n=n, note=NOTE)


class Count(AggregateFunction[tuple[int, str], int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: tuple[int, str], accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class AsRow(ProcessWindowFunction[int, Row, str, Any]):
    def process(self, key: str, context: Any, elements: Iterable[int]) -> Iterable[Row]:
        second = context.window().start // SECOND
        yield from (Row(word=key, second=second, n=n) for n in elements)


def parse(text: str) -> tuple[int, str]:
    at, word = text.split()
    return int(at), word


def build(shape: Shape) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(shape.settings)
    )
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(shape.bootstrap)
        .set_topics(shape.topic)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    ordered = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2))
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").uid("lines")
    words = lines.map(parse, WORD).uid("words")
    timed = words.assign_timestamps_and_watermarks(ordered.with_timestamp_assigner(TimeOf()))
    by_word = timed.uid("timed").key_by(lambda word: word[1], TEXT)
    counts = by_word.process(CountUp(), COUNT).uid("counts")
    windows = by_word.window(TumblingEventTimeWindows.of(Time.seconds(1))).aggregate(
        Count(), AsRow(), accumulator_type=LONG, output_type=WINDOW
    )
    for table, rows in (("counts", counts), ("windows", windows.uid("windows"))):
        sink = PostgresSink.builder().set_dsn(shape.dsn).set_table(table).build()
        rows.sink_to(sink).uid(f"table {table}")
    return env


def main(path: Path) -> int:
    build(msgspec.json.decode(path.read_bytes(), type=Shape)).execute(JOB)
    print("finished")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
