"""Late data: one reading arrives after its window has fired, the same one in every run.

Two settings make this reproducible. The watermark advances after every micro-batch, so with one
record per micro-batch it advances after every reading. And the watermark of a stream is the minimum
over its subtasks, so there is only one.
"""

from collections.abc import Iterable
from typing import Any

from penstock.common import Configuration, Duration, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows

Reading = tuple[str, int, int]  # sensor, seconds, degrees
READING = Types.TUPLE([Types.STRING(), Types.INT(), Types.INT()])
LATE = OutputTag("late", READING)

READINGS = [
    ("roof", 3, 20),
    ("roof", 11, 22),  # the watermark is now 8.999 s: 2 seconds and 1 ms below 11
    ("roof", 9, 21),  # out of order, but in time for the window [0, 10)
    ("roof", 14, 23),  # the watermark is now 11.999 s: the window [0, 10) fires
    ("roof", 5, 19),  # late
    ("roof", 21, 25),  # the watermark is now 18.999 s
]


class ReadingTime(TimestampAssigner):
    def extract_timestamp(self, value: Reading, record_timestamp: int) -> int:
        return value[1] * 1000


class Mean(ProcessWindowFunction[Reading, str, str, Any]):
    def process(self, key: str, context: Any, elements: Iterable[Reading]) -> Iterable[str]:
        degrees = [degrees for _, _, degrees in elements]
        window = context.window()
        start, end = window.start // 1000, window.end // 1000
        yield f"{key} [{start}, {end}): {len(degrees)} readings, mean {sum(degrees) / len(degrees)}"


if __name__ == "__main__":
    one_record = {
        "penstock.micro-batch.initial-records": "1",
        "penstock.micro-batch.max-records": "1",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(one_record))
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2))
    means = (
        env.from_collection(READINGS, READING)
        .assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(ReadingTime()))
        .key_by(lambda reading: reading[0], Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .side_output_late_data(LATE)
        .process(Mean(), Types.STRING())
    )
    means.print("mean")
    means.get_side_output(LATE).print("late")
    env.execute("late data")
