"""Count words: lines from a text file or a socket, a running count per word, printed.

    penstock run examples/word_count.py README.md
    penstock run examples/word_count.py localhost:9999      (nc -lk 9999 on the other side)

Without an argument it counts the words of this file. With `--supervise` and a directory for its
checkpoints, `-D execution.checkpointing.dir=DIRECTORY`, its counts outlive a killed driver.
"""

import sys
from collections.abc import Iterator

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction[str, str, tuple[str, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(
        self, value: str, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, int]]:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield value, count


def lines(env: StreamExecutionEnvironment, where: str) -> DataStream:
    if ":" in where:
        host, port = where.split(":")
        return env.socket_text_stream(host, int(port))
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), where).build()
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")


def main(where: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    words = lines(env, where).flat_map(str.split, Types.STRING())
    counts = words.key_by(lambda word: word, Types.STRING()).process(
        Count(), Types.TUPLE([Types.STRING(), Types.LONG()])
    )
    counts.print()
    env.execute("word count")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else __file__)
