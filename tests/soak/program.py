"""The job of a soak: `program.py BOOTSTRAP DIRECTORY`, until it is stopped.

A watched directory and a Kafka topic → a keyed step with timers → windows → files.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.common import Duration, Encoder, SimpleStringSchema, Time, Types, WatermarkStrategy
from penstock.datastream import RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import (
    FileSink,
    FileSource,
    RollingPolicy,
    StreamFormat,
)
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from penstock.datastream.functions import KeyedProcessFunction, ReduceFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingProcessingTimeWindows

COUNT = Types.TUPLE([Types.STRING(), Types.LONG()])


class Sessions(KeyedProcessFunction[str, str, tuple[str, int]]):
    """Count the records of a key; a timer forgets it again."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Iterable[tuple[str, int]]:
        count = self.seen.value() or 0
        self.seen.update(count + 1)
        if not count:
            timers = ctx.timer_service()
            timers.register_processing_time_timer(timers.current_processing_time() + 5_000)
        yield ctx.get_current_key(), 1

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[tuple[str, int]]:
        self.seen.clear()
        return ()


class Add(ReduceFunction[tuple[str, int]]):
    def reduce(self, value1: tuple[str, int], value2: tuple[str, int]) -> tuple[str, int]:
        return value1[0], value1[1] + value2[1]


def main(bootstrap: str, directory: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    env.enable_checkpointing(100)
    lines = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(directory / "in")
    ).monitor_continuously(Duration.of_millis(200))
    topic = (
        KafkaSource.builder()
        .set_bootstrap_servers(bootstrap)
        .set_topics("soak")
        .set_group_id("soak")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
    )
    plain = WatermarkStrategy.no_watermarks()
    files = (
        FileSink.for_row_format(str(directory / "out"), Encoder.simple_string_encoder())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    (
        env.from_source(lines.build(), plain, "files")
        .uid("files")
        .union(env.from_source(topic.build(), plain, "topic").uid("topic"))
        .key_by(lambda line: line[:6], Types.STRING())
        .process(Sessions(), COUNT)
        .uid("sessions")
        .key_by(lambda count: count[0], Types.STRING())
        .window(TumblingProcessingTimeWindows.of(Time.seconds(2)))
        .reduce(Add())
        .uid("windows")
        .map(str, Types.STRING())
        .sink_to(files)
        .uid("out")
    )
    env.execute("soak")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
