"""Generate records at a given rate, watch their counters, then cancel the job."""

import sys
import time

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.connectors.discard import DiscardingSink
from penstock.errors import JobCancelledError


class Dice(MapFunction[int, int]):
    """Counters are exact: each micro-batch adds to them once, when it is published."""

    def open(self, runtime_context: RuntimeContext) -> None:
        metrics = runtime_context.get_metrics_group()
        self.thrown = metrics.counter("thrown")
        self.sixes = metrics.counter("sixes")

    def map(self, value: int) -> int:
        self.thrown.inc()
        if value == 6:
            self.sixes.inc()
        return value


def throw(index: int) -> int:
    return index * 7919 % 6 + 1


def main(seconds: float) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    source = DataGeneratorSource(
        throw, 1_000_000, RateLimiterStrategy.per_second(200), Types.LONG()
    )
    throws = env.from_source(source, WatermarkStrategy.no_watermarks(), "throws")
    throws.map(Dice(), Types.LONG()).name("dice").sink_to(DiscardingSink())
    client = env.execute_async("dice")
    time.sleep(seconds)
    print("while it runs:", client.get_job_status().result().name)
    client.cancel().result()
    try:
        client.get_job_execution_result().result()
    except JobCancelledError as ended:
        print("then:", ended)
    counted = client.get_accumulators().result()
    print("thrown:", counted.get("dice.thrown", 0), "sixes:", counted.get("dice.sixes", 0))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 5)
