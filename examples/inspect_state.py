"""Looks into the state of a job with Spark SQL: the keys with most, skew, one key, what changed.

    penstock run examples/inspect_state.py

The first half is an ordinary job. The second half reads its last checkpoint while it runs. It needs
neither the job nor its classes, and works in other programs and for savepoints as well.
"""

import contextlib
import random
import tempfile
import time
from collections.abc import Iterator

from pyspark.sql import SparkSession

from penstock.common import Configuration, JobClient, Types, WatermarkStrategy
from penstock.datastream import RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.errors import SnapshotError
from penstock.spark import read_state

CUSTOMERS, VISITS, LAST = 500, 5_000, 3

Visit = tuple[int, str]  # customer and page


class Visits(KeyedProcessFunction[int, Visit, Visit]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.pages = runtime_context.get_list_state(ListStateDescriptor("pages", Types.STRING()))

    def process_element(self, value: Visit, ctx: KeyedProcessFunction.Context) -> Iterator[Visit]:
        self.count.update((self.count.value() or 0) + 1)
        self.pages.update([*self.pages.get(), value[1]][-LAST:])
        yield from ()


def visit(number: int) -> Visit:
    chance = random.Random(number)
    return int(chance.random() ** 2 * CUSTOMERS), f"/page/{number % 17}"


def start_job(directory: str) -> JobClient:
    settings = {"execution.checkpointing.dir": directory, "penstock.job-id": "visits"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.enable_checkpointing(1000)
    row = Types.TUPLE([Types.LONG(), Types.STRING()])
    made = DataGeneratorSource(visit, 10**9, RateLimiterStrategy.per_second(5000), row)
    visits = env.from_source(made, WatermarkStrategy.no_watermarks(), "visits").set_parallelism(1)
    by_customer = visits.key_by(lambda v: v[0], Types.LONG())
    by_customer.process(Visits(), row).uid("customers").print()
    return env.execute_async("visits")


def wait_for_visits(spark: SparkSession, path: str) -> None:
    while True:
        time.sleep(1)
        with contextlib.suppress(SnapshotError):  # there is no checkpoint yet, or nothing in it
            visits = read_state(spark, path, operator="customers", state="count")
            if (visits.selectExpr("sum(value.value)").first()[0] or 0) > VISITS:
                return


def inspect(spark: SparkSession, path: str) -> None:
    visits = read_state(spark, path, operator="customers", state="count")
    visits.createOrReplaceTempView("visits")
    print("customers and visits:")
    spark.sql("SELECT count(*), sum(value.value) FROM visits").show()
    print("who comes most often:")
    spark.sql("SELECT key.value, value.value FROM visits ORDER BY 2 DESC LIMIT 3").show()
    print("skew, by subtask:")
    visits.groupBy("partition_id").count().orderBy("partition_id").show()
    print("what the job knows about customer 42:")
    pages = read_state(spark, path, operator="customers", state="pages", keys=[42])
    pages.selectExpr("list_position", "list_element.value").orderBy("list_position").show()
    states = spark.read.format("penstock.state-metadata").load(path).where("keyType IS NOT NULL")
    states.select("operator-uid", "stateStoreName", "stateKind", "stateType").show()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        job = start_job(directory)
        spark, path = SparkSession.active(), f"{directory}/visits"
        wait_for_visits(spark, path)
        inspect(spark, path)
        job.stop_with_savepoint(False, f"{directory}/savepoints").result()
        job.get_job_execution_result().result()
