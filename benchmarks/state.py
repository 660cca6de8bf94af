"""State as DataFrames beside Spark's `statestore` source: `python -m benchmarks.state read|memory`.

`read`: a streaming query of Spark (`groupBy().count()`, with either of its stores) and a job have
the same keys in their state. All are read in turns, in one session: every row, all columns. Before
that counts and sums of what is read are compared with the input.

`memory`: large values are read, and the memory of the Python workers is watched.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.memory import descendants
from benchmarks.settings import ROCKSDB, environment
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import SnapshotError
from penstock.snapshots.operator_state import source_positions
from penstock.snapshots.reading import reading
from penstock.spark import read_state
from penstock.spark.session import open_session
from penstock.testing import run_inline

SPREAD = 2_654_435_761
"""Neighbours of the input are far apart as keys."""
BACKENDS = ("hashmap", "rocksdb")
STORES = {"statestore, default store": "", "statestore, RocksDB": ROCKSDB}
_PATIENCE_S = 1800.0


class Count(KeyedProcessFunction[int, int, int]):
    """Counts a key, or keeps a large text for it."""

    def __init__(self, value_bytes: int) -> None:
        self._text = "x" * value_bytes

    def open(self, runtime_context: RuntimeContext) -> None:
        if self._text:
            self._state = runtime_context.get_state(ValueStateDescriptor("text", Types.STRING()))
        else:
            self._state = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        if self._text:
            self._state.update(f"{value}{self._text}")
        else:
            self._state.update((self._state.value() or 0) + 1)
        return iter(())


def write_job(directory: Path, backend: str, keys: int, value_bytes: int = 0) -> tuple[Path, Path]:
    """Run a job until a checkpoint has all keys; returns it, and a savepoint."""
    settings = {
        "execution.checkpointing.dir": str(directory / "jobs"),
        "execution.checkpointing.interval": "2 s",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "state.backend.type": backend,
        "penstock.job-id": backend,
        "penstock.work-dir": str(directory / "work"),
    }
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(settings)
    )
    env = run_inline(environment).set_parallelism(2)
    numbers = NumberSequenceSource(0, 1 << 60)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    counted = stream.set_parallelism(1).key_by(lambda n: n * SPREAD % keys, Types.LONG())
    counted.process(Count(value_bytes), Types.LONG()).uid("count").sink_to(DiscardingSink())
    client = env.execute_async(backend)
    job, end = directory / "jobs" / backend, time.monotonic() + _PATIENCE_S
    while _read_so_far(job) < keys:
        if time.monotonic() > end:
            msg = f"the job has not read {keys} numbers in {_PATIENCE_S:.0f} s"
            raise TimeoutError(msg)
        time.sleep(0.2)
    savepoint = directory / "savepoint"
    if not savepoint.exists():
        Path(client.trigger_savepoint(str(directory / "savepoints")).result()).rename(savepoint)
    client.cancel().result()
    return job, savepoint


def _read_so_far(job: Path) -> int:
    try:
        with reading(job) as found:
            table = source_positions(found.snapshot.metadata)
    except SnapshotError:
        return 0
    return sum(position or 0 for position in table.column("position").to_pylist())


def write_query(spark: SparkSession, directory: Path, provider: str, keys: int) -> Path:
    """Run a streaming query over all keys, and return its checkpoint."""
    table, checkpoint = directory / "table", directory / "checkpoint"
    spark.range(0, keys, 1, 4).write.parquet(str(table))
    setting = "spark.sql.streaming.stateStore.providerClass"
    if provider:
        spark.conf.set(setting, provider)
    stream = spark.readStream.schema("id long").parquet(str(table)).groupBy("id").count()
    query = stream.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    query.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    spark.conf.unset(setting)
    return checkpoint


def check(frame: DataFrame, value: str, keys: int, total: int) -> None:
    """Compare a read with the input."""
    key = frame.schema["key"].dataType.fieldNames()[0]
    row = frame.selectExpr("count(*)", f"sum(key.{key})", f"sum(value.{value})").first()
    expected = (keys, keys * (keys - 1) // 2, total)
    if row is None or tuple(row) != expected:
        msg = f"read {row}; expected {expected}"
        raise AssertionError(msg)


def timed(frame: Callable[[], DataFrame]) -> float:
    """Return how long it takes to plan and read every row, with all columns."""
    began = time.perf_counter()
    frame().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def read(keys: int, rounds: int, directory: Path) -> dict[str, Any]:
    """Read the same keys from Spark's stores and ours, in turns."""
    contenders: dict[str, Callable[[], DataFrame]] = {}
    spark = _session()
    for name, provider in STORES.items():
        path = write_query(spark, directory / name.replace(" ", "-"), provider, keys)
        contenders[name] = partial(spark.read.format("statestore").load, str(path))
        check(contenders[name](), "count", keys, keys)
    for backend in BACKENDS:
        job, savepoint = write_job(directory / backend, backend, keys)
        snapshots = {f"penstock, {backend}": job}
        if backend == BACKENDS[0]:
            snapshots["penstock, savepoint"] = savepoint
        for name, path in snapshots.items():
            contenders[name] = partial(read_state, spark, path, operator="count")
            check(contenders[name](), "value", keys, _read_so_far(path))
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, frame in contenders.items():
            seconds[name].append(timed(frame))
    return {"keys": keys, "rounds": rounds, "seconds": seconds}


def read_table(found: dict[str, Any]) -> str:
    """Return the results as a table; the first round of each is a warm-up."""
    seconds = {name: times[1:] or times for name, times in found["seconds"].items()}
    first, second = (seconds[name] for name in STORES)
    lines = [
        "| read, all columns | s | rounds | keys/s | x default store | x RocksDB |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, times in seconds.items():
        middle = statistics.median(times)
        ratios = [f"{statistics.median(base) / middle:.1f}" for base in (first, second)]
        spread = f"{min(times):.2f}..{max(times):.2f}"
        rate = f"{found['keys'] / middle:,.0f}"
        lines.append(f"| {name} | {middle:.2f} | {spread} | {rate} | {' | '.join(ratios)} |")
    return "\n".join(lines)


class WorkerMemory:
    """The most memory that any Python worker has of its own, sampled; mapped files are no part."""

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            for pid, _ in descendants(os.getpid()):
                try:
                    command = Path(f"/proc/{pid}/cmdline").read_text()
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                for line in status.splitlines():
                    if "pyspark.worker" in command and line.startswith("RssAnon:"):
                        self.peak_mb = max(self.peak_mb, int(line.split()[1]) / 1024)


def memory(gigabytes: float, directory: Path) -> dict[str, Any]:
    """Read large states, and watch the memory of the workers."""
    value_bytes = 1000
    keys = int(gigabytes * 1e9 / value_bytes)
    spark, found = _session(), {}
    for backend in BACKENDS:
        job, savepoint = write_job(directory / backend, backend, keys, value_bytes)
        snapshots = {backend: job}
        if backend == BACKENDS[0]:
            snapshots["savepoint"] = savepoint
        for name, path in snapshots.items():
            with WorkerMemory() as watched:
                frame = read_state(spark, path, operator="count")
                row = frame.selectExpr("count(*)", "sum(length(value.value))").first()
            assert row is not None
            assert row[0] == keys
            found[name] = {"state_mb": row[1] / 1e6, "worker_mb": watched.peak_mb}
    return {"keys": keys, "value_bytes": value_bytes, "peaks": found}


def memory_table(found: dict[str, Any]) -> str:
    """Return the results as a table."""
    lines = ["| snapshot | state MB | worker MB |", "| --- | ---: | ---: |"]
    for name, peak in found["peaks"].items():
        lines.append(f"| {name} | {peak['state_mb']:,.0f} | {peak['worker_mb']:,.0f} |")
    return "\n".join(lines)


def _session() -> SparkSession:
    os.environ.update(environment(2, "4g"))
    return open_session({"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state", description=__doc__)
    parser.add_argument("part", choices=("read", "memory"))
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--json", type=Path, help="write the results to a file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        if options.part == "read":
            found = read(options.keys, options.rounds, Path(directory))
            print(read_table(found))
        else:
            found = memory(options.gigabytes, Path(directory))
            print(memory_table(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
