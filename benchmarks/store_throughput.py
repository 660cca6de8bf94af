"""Throughput with checkpoints in S3 beside local ones: `python -m benchmarks.store_throughput`.

The same job runs with a checkpoint every 5 seconds into a directory of this machine and into an S3
server on it, in turns, on one Spark session. A ratio is of two runs of one round.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from penstock.checkpoint.history import History
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.common.storage_url import Location
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.ids import JobKey
from penstock.storage.storages import storage_at
from penstock.testing.servers.s3_server import S3Server

TASKS = 2
KEYS = 200_000
INTERVAL = "5 s"
BUCKET = "bench"
JOB = "throughput"


class Total(KeyedProcessFunction[int, int, int]):
    """Adds up the numbers of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[int]:
        total = (self._total.value() or 0) + value
        self._total.update(total)
        yield total


def run(records: int, settings: Mapping[str, str], place: Location) -> tuple[float, int]:
    """Run the job; return records per second and the number of its checkpoints."""
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(
            {
                "spark.master": f"local[{TASKS},4]",
                "parallelism.default": str(TASKS),
                "penstock.job-id": JOB,
                "execution.checkpointing.dir": str(place),
                "execution.checkpointing.interval": INTERVAL,
                "execution.checkpointing.incremental": "true",
                **settings,
            }
        )
    )
    source = NumberSequenceSource(1, records)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    totals = numbers.key_by(lambda n: n % KEYS, Types.LONG()).process(Total(), Types.LONG())
    totals.sink_to(DiscardingSink())
    started = time.perf_counter()
    env.execute(JOB)
    seconds = time.perf_counter() - started
    return records / seconds, len(
        History(storage_at(JobDir(place, JobKey(JOB)).path)).checkpoints()
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=6_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", default="rocksdb")
    chosen = parser.parse_args()
    table = Table("round", "local, records/s", "S3, records/s", "S3 / local", "checkpoints")
    ratios = []
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory,
        S3Server(Path(directory, "s3")) as server,
    ):
        server.create_bucket(BUCKET)
        common = {
            "state.backend.type": chosen.backend,
            "penstock.work-dir": f"{directory}/work",
            "penstock.state.local-dir": f"{directory}/state",
            **{f"penstock.storage.{key}": value for key, value in server.options().items()},
        }
        run(chosen.records // 10, common, Path(directory, "warm"))  # starts Spark
        for number in range(1, chosen.rounds + 1):
            places: dict[str, Location] = {
                "local": Path(directory, f"local-{number}"),
                "S3": server.url(BUCKET, str(number)),
            }
            # First one, then the other one first.
            order = list(places) if number % 2 else list(places)[::-1]
            found = {place: run(chosen.records, common, places[place]) for place in order}
            (local, locals_), (store, stores) = found["local"], found["S3"]
            ratios.append(store / local)
            table.add_row(
                str(number),
                f"{local:,.0f}",
                f"{store:,.0f}",
                f"{store / local:.2f}",
                f"{locals_}, {stores}",
            )
    console = Console(highlight=False, width=100)
    console.print(table)
    low, high = min(ratios), max(ratios)
    console.print(f"median {median(ratios):.2f} of local ({low:.2f} to {high:.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
