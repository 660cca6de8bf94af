"""A job after a streaming query with Spark state; the test next to it kills it."""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.common import Configuration, Encoder, Types
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.state import ValueStateDescriptor

JOB = "behind-a-query"
FILES, EVENTS, WINDOW = 6, 40, 20
BASE = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
CLOSING = "end"


class Variant(msgspec.Struct, frozen=True):
    """Where the job works."""

    directory: str
    spark: bool = True

    @property
    def checkpoints(self) -> Path:
        return Path(self.directory, "checkpoints")

    @property
    def output(self) -> Path:
        return Path(self.directory, "out")


def write_input(directory: Path) -> None:
    """Write files in which every event comes twice, and some that close all windows."""
    directory.mkdir()
    for number in range(FILES + 1):
        own = range(number * EVENTS, (number + 1) * EVENTS) if number < FILES else ()
        before = range((number - 1) * EVENTS, number * EVENTS) if number else ()
        _write(directory, number, [(n, f"k{n % 5}", n) for n in (*own, *before)])
    for number in range(FILES + 1, FILES + 4):
        _write(directory, number, [(-number, CLOSING, number * 100_000)])


def _write(directory: Path, number: int, events: list[tuple[int, str, int]]) -> None:
    path = directory / f"{number:03d}.json"
    rows = (
        {"id": id_, "k": key, "t": (BASE + datetime.timedelta(seconds=at)).isoformat()}
        for id_, key, at in events
    )
    path.write_text("\n".join(map(json.dumps, rows)))
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def expected() -> Counter[tuple[str, int, int]]:
    """Key, beginning of a window in seconds, and how many events; each once."""
    counts = Counter((f"k{n % 5}", n // WINDOW * WINDOW) for n in range(FILES * EVENTS))
    return Counter((key, start, count) for (key, start), count in counts.items())


def query(spark: SparkSession, directory: Path) -> DataFrame:
    """Events without duplicates, counted by window and key."""
    read = spark.readStream.schema("id long, k string, t timestamp")
    events = read.option("maxFilesPerTrigger", 1).json(str(directory))
    once = events.withWatermark("t", "60 seconds").dropDuplicates(["id", "t"])
    counted = once.groupBy("k", f.window("t", f"{WINDOW} seconds").alias("w")).count()
    seconds = f.unix_timestamp("w.start") - int(BASE.timestamp())
    return counted.select("k", seconds.alias("start"), "count").where(f"k != '{CLOSING}'")


class Numbered(KeyedProcessFunction[str, Any, str]):
    """Numbers the rows of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        n = (self._seen.value() or 0) + 1
        self._seen.update(n)
        yield f"{value.k},{value.start},{value['count']},{n}"


def main(variant: Variant) -> None:
    """Run the job to its end."""
    configuration = Configuration.from_dict(
        {
            "penstock.job-id": JOB,
            "execution.checkpointing.dir": str(variant.checkpoints),
            "execution.checkpointing.interval": "500 ms",
            "restart-strategy.type": "none",
            "spark.master": "local[2,4]",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    df = query(env.get_spark_session(), Path(variant.directory, "in"))
    keyed = env.from_stream(df, "windows", bounded=True).key_by(lambda row: row.k, Types.STRING())
    sink = FileSink.for_row_format(str(variant.output), Encoder.simple_string_encoder()).build()
    keyed.process(Numbered(), Types.STRING()).sink_to(sink)
    env.execute(JOB)


if __name__ == "__main__":
    main(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Variant))
