"""Barrier alignment: the barriers of a fast source wait for those of a slow one.

    penstock run examples/alignment.py DIRECTORY
    penstock checkpoints alignment --dir DIRECTORY/checkpoints 2

The second command shows the second checkpoint: when each step received its barriers, how long the
inputs waited for each other, and how many bytes were blocked meanwhile.
"""

import sys
import time
from pathlib import Path

from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink

SECONDS = 12
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


def numbers(env: StreamExecutionEnvironment, name: str, rate: int, pause: float) -> DataStream:
    def work(number: int) -> tuple[int, int]:
        time.sleep(pause)
        return number % 10, 1

    pace = RateLimiterStrategy.per_second(rate)
    source = DataGeneratorSource(lambda number: number, SECONDS * rate, pace, Types.LONG())
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), name).uid(name)
    return stream.map(work, PAIR).name("work")


def main(directory: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.checkpointing.dir": f"{directory}/checkpoints"})
    )
    env.set_parallelism(1)
    env.enable_checkpointing(2000)
    files = (
        FileSink.for_row_format(directory / "finished", Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    both = numbers(env, "fast", 400, pause=0).union(numbers(env, "slow", 20, pause=0.04))
    sums = both.key_by(lambda pair: pair[0], Types.LONG()).sum(1).name("sum").uid("sum")
    sums.sink_to(files).name("files").uid("files")
    env.execute("alignment")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "alignment"))
