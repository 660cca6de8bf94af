"""A small job without Spark that a test may end: `python -m … CHECKPOINTS JOB_ID`."""

from __future__ import annotations

import sys
import time

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.testing.inline import run_inline


def slowly(number: int) -> int:
    time.sleep(0.002)
    return number


def main(checkpoints: str, job_id: str) -> None:
    configuration = Configuration.from_dict(
        {
            "execution.checkpointing.dir": checkpoints,
            "execution.checkpointing.interval": "300 ms",
            "penstock.micro-batch.max-records": "20",
            "penstock.job-id": job_id,
        }
    )
    env = run_inline(StreamExecutionEnvironment.get_execution_environment(configuration))
    numbers = NumberSequenceSource(1, 10**9)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    stream.map(slowly, Types.LONG()).sink_to(DiscardingSink())
    env.execute("one of one's own")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
