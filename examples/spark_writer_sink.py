"""A sink through Spark's writers: orders into Parquet by `df.write`, exactly once.

    penstock run examples/spark_writer_sink.py DIRECTORY

`prepare` writes a transaction's rows with Spark into a directory that readers ignore; `commit`
renames it. Every format that `DataFrameWriter` has works in place of Parquet.
"""

import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import (
    AlreadyCommitted,
    DataGeneratorSource,
    RateLimiterStrategy,
    TransactionContext,
    TwoPhaseSink,
)

Order = tuple[int, str]
Transaction = tuple[str, list[Order]]


def parquet_sink(spark: SparkSession, table: Path) -> TwoPhaseSink:
    """Return a sink that adds a directory `batch=NAME` to the table for each transaction."""
    staging = table / "_staging"  # Spark's readers skip names that begin with "_"

    def begin(context: TransactionContext) -> Transaction:
        return context.name, []

    def write(transaction: Transaction, values: list[Order]) -> None:
        transaction[1].extend(values)

    def prepare(transaction: Transaction) -> str:
        name, orders = transaction
        frame = spark.createDataFrame(orders, "id long, item string")
        frame.write.mode("overwrite").parquet(str(staging / name))
        return name

    def commit(name: str) -> None:
        staged, final = staging / name, table / f"batch={name}"
        if final.exists():
            raise AlreadyCommitted
        staged.rename(final)  # raises if it is neither staged nor committed

    def abort(context: TransactionContext, transaction: object, committable: object) -> None:
        shutil.rmtree(staging / context.name, ignore_errors=True)

    return TwoPhaseSink(open=begin, write=write, prepare=prepare, commit=commit, abort=abort)


def main(directory: Path, orders: int = 150) -> None:
    def order(number: int) -> Order:
        if number > orders // 2 and not (directory / "failed").exists():
            (directory / "failed").touch()
            raise OSError(number)  # once, to show that the job recovers
        return number, f"item {number % 7}"

    directory.mkdir(parents=True, exist_ok=True)
    settings = {"execution.checkpointing.dir": str(directory / "checkpoints")}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.enable_checkpointing(1000)
    env.set_parallelism(1)  # one directory per checkpoint
    spark = env.get_spark_session()
    table = directory / "orders"
    source = DataGeneratorSource(int, orders, RateLimiterStrategy.per_second(50), Types.LONG())
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        .map(order, Types.TUPLE([Types.LONG(), Types.STRING()]))
        .sink_to(parquet_sink(spark, table))
        .uid("orders")
    )
    env.execute("spark writer sink")
    written = spark.read.parquet(str(table))
    print(f"{written.count()} rows, {written.select('id').distinct().count()} orders")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
