"""Bootstraps the state of a job from a table, and feeds the same table through the job.

    python -m benchmarks.state_bootstrap [--keys N] [--rounds N] [--backend NAME]

A table in Parquet has a row per key. `SavepointWriter` writes it as a value state; the job reads
it with `from_dataframe` and puts each row into the same state, up to its final checkpoint. Both
are measured in turns, in one process and one JVM, from the first call to the end. A job then
starts from the savepoint and looks up some keys.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench import RESULTS
from benchmarks.results import machine_facts
from penstock.common import Configuration, Row, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor

KEYS, ROUNDS, GOAL = 10_000_000, 3, 3.0
_UID = "customers"
_LOOKED_UP = 1000
_BALANCE = ValueStateDescriptor("balance", Types.LONG())


class Put(KeyedProcessFunction[str, Row, int]):
    """Puts each row into the state of its key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._balance = runtime_context.get_state(_BALANCE)

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        self._balance.update(value.value)
        return iter(())


class LookUp(KeyedProcessFunction[str, int, tuple[int, int]]):
    """Emits what the state of a key holds."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._balance = runtime_context.get_state(_BALANCE)

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int]]:
        yield value, self._balance.value() or 0


def customer(number: int) -> str:
    return f"customer-{number:08d}"


def balance(number: int) -> int:
    return number * 7919 % 100_000


def write_table(spark: Any, keys: int, path: Path) -> None:
    from pyspark.sql import functions as F

    number = F.col("id")
    key = F.concat(F.lit("customer-"), F.format_string("%08d", number))
    value = (number * 7919) % 100_000
    spark.range(keys).select(key.alias("key"), value.alias("value")).write.parquet(str(path))


def bootstrap(spark: Any, table: Path, savepoint: Path) -> float:
    from penstock.spark.state import SavepointWriter, keyed_state

    started = time.perf_counter()
    rows = keyed_state(_BALANCE, spark.read.parquet(str(table)))
    writer = SavepointWriter.new_savepoint(spark)
    writer.with_operator(_UID, Types.STRING(), [rows]).write(savepoint)
    return time.perf_counter() - started


def configuration(directory: Path, backend: str) -> Configuration:
    return Configuration.from_dict(
        {
            "execution.checkpointing.dir": str(directory),
            "state.backend.type": backend,
            "execution.checkpointing.interval": "1 h",
            "restart-strategy.type": "none",
        }
    )


def feed(spark: Any, table: Path, directory: Path, backend: str) -> float:
    started = time.perf_counter()
    env = StreamExecutionEnvironment.get_execution_environment(configuration(directory, backend))
    rows = env.from_dataframe(spark.read.parquet(str(table)))
    keyed = rows.key_by(lambda row: row.key, Types.STRING())
    keyed.process(Put(), Types.LONG()).uid(_UID).sink_to(DiscardingSink())
    env.execute("feed")
    return time.perf_counter() - started


def wrong_answers(savepoint: Path, keys: int, directory: Path, backend: str) -> int:
    """Start a job from the savepoint; return how many keys it has wrong."""
    config = configuration(directory, backend)
    config.set_string("execution.state-recovery.path", str(savepoint))
    env = StreamExecutionEnvironment.get_execution_environment(config)
    step = max(1, keys // _LOOKED_UP)
    last = (keys - 1) // step
    numbers = env.from_source(
        NumberSequenceSource(0, last), WatermarkStrategy.no_watermarks(), "numbers"
    ).map(lambda number: number * step, Types.LONG())
    found = numbers.key_by(customer, Types.STRING()).process(
        LookUp(), Types.TUPLE([Types.LONG(), Types.LONG()])
    )
    with found.uid(_UID).execute_and_collect("look up") as results:
        answers = list(results)
    wrong: int = sum(value != balance(number) for number, value in answers)
    return wrong + abs(len(answers) - last - 1)


def run(keys: int, rounds: int, backend: str, directory: Path) -> dict[str, Any]:
    """Measure both in turns; return seconds of each round."""
    from penstock.spark.session import open_session

    spark = open_session({"spark.master": "local[2]", "spark.driver.memory": "4g"})
    table = directory / "table"
    write_table(spark, keys, table)
    seconds: dict[str, list[float]] = {"SavepointWriter": [], "through the job": []}
    wrong = 0
    for number in range(rounds):
        savepoint = directory / f"savepoint-{number}"
        seconds["SavepointWriter"].append(bootstrap(spark, table, savepoint))
        seconds["through the job"].append(feed(spark, table, directory / f"feed-{number}", backend))
        times = ", ".join(f"{way} {found[-1]:.1f} s" for way, found in seconds.items())
        print(f"round {number + 1}: {times}", file=sys.stderr)
        if number == rounds - 1:
            wrong = wrong_answers(savepoint, keys, directory / "after", backend)
        shutil.rmtree(savepoint)
        shutil.rmtree(directory / f"feed-{number}", ignore_errors=True)
    return {"keys": keys, "backend": backend, "seconds": seconds, "wrong": wrong}


def table_of(found: dict[str, Any]) -> list[str]:
    keys, seconds = found["keys"], found["seconds"]
    slow = statistics.median(seconds["through the job"])
    lines = ["| way | s (lowest..highest) | keys/s | x |", "|---|---|---|---|"]
    for way, times in seconds.items():
        middle = statistics.median(times)
        spread = f"{middle:.1f} ({min(times):.1f}..{max(times):.1f})"
        lines.append(f"| {way} | {spread} | {keys / middle:,.0f} | {slow / middle:.1f} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--backend", default="rocksdb")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="penstock-bootstrap-") as directory:
        found = run(chosen.keys, chosen.rounds, chosen.backend, Path(directory))
    print("\n".join(table_of(found)))
    print(f"wrong of {_LOOKED_UP} keys in a job that starts from it: {found['wrong']}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine_facts(), **found}, indent=1)
    (RESULTS / "state_bootstrap.json").write_text(text)
    first, second = found["seconds"].values()
    return int(found["wrong"] > 0 or statistics.median(second) < GOAL * statistics.median(first))


if __name__ == "__main__":
    sys.exit(main())
