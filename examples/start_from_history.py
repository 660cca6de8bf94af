"""Starts a job with years of history: its state comes from a table, new records from Kafka.

    start_from_history.py                      # new orders come from a file
    start_from_history.py localhost:9092 orders

The table has all orders up to an offset of each partition. Spark adds them up. The savepoint gets
the totals and the offsets, and the job continues with the first order that is not in the table.
"""

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from penstock.datastream import DataStream, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.spark.session import open_session
from penstock.spark.state import SavepointWriter, keyed_state

CUSTOMERS, HISTORY, NEW, PARTITIONS = 5, 1000, 50, 2
TOTAL = ValueStateDescriptor("total", Types.LONG())
ITEMS = MapStateDescriptor("items", Types.STRING(), Types.LONG())


def order(number: int) -> dict[str, object]:
    item = ("tea", "ink", "cake")[number % 3]
    return {"customer": f"customer-{number % CUSTOMERS}", "item": item, "amount": number % 17}


class AddUp(KeyedProcessFunction[str, str, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(TOTAL)
        self.items = runtime_context.get_map_state(ITEMS)

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        found = json.loads(value)
        item, total = found["item"], (self.total.value() or 0) + found["amount"]
        self.total.update(total)
        self.items.put(item, (self.items.get(item) or 0) + 1)
        yield f"{found['customer']} {item} {self.items.get(item)} {total}"


def bootstrap(spark: SparkSession, topic: str | None, path: Path) -> str:
    schema = "number int, customer string, item string, amount bigint"
    orders = spark.createDataFrame([{"number": n, **order(n)} for n in range(HISTORY)], schema)
    totals = orders.groupBy("customer").sum("amount").toDF("key", "value")
    items = orders.groupBy("customer", "item").count().toDF("key", "map_key", "value")
    states = keyed_state(TOTAL, totals), keyed_state(ITEMS, items)
    writer = SavepointWriter.new_savepoint(spark).with_operator("totals", Types.STRING(), states)
    if topic is not None:
        partition = F.format_string(f"{topic}-%d", F.col("number") % PARTITIONS)
        offsets = orders.groupBy(partition).count().toDF("split", "position")
        writer.with_source_positions("orders", offsets)
    return writer.write(path)


def new_orders(env: StreamExecutionEnvironment, server: str, topic: str) -> DataStream:
    earliest, latest = KafkaOffsetsInitializer.earliest(), KafkaOffsetsInitializer.latest()
    builder = KafkaSource.builder().set_bootstrap_servers(server).set_topics(topic)
    builder = builder.set_starting_offsets(earliest).set_bounded(latest)
    source = builder.set_value_only_deserializer(SimpleStringSchema()).build()
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "orders")


def orders_of_a_file(env: StreamExecutionEnvironment, path: Path) -> DataStream:
    path.write_text("".join(f"{json.dumps(order(HISTORY + n))}\n" for n in range(NEW)))
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(path))
    return env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "orders")


def main(directory: Path, server: str | None = None, topic: str | None = None) -> None:
    spark = open_session({})
    savepoint = bootstrap(spark, topic, directory / "history")
    settings = Configuration.from_dict({"execution.state-recovery.path": savepoint})
    env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(2)
    if server is None or topic is None:
        orders = orders_of_a_file(env, directory / "orders.json")
    else:
        orders = new_orders(env, server, topic)
    keyed = orders.uid("orders").key_by(lambda line: json.loads(line)["customer"], Types.STRING())
    keyed.process(AddUp(), Types.STRING()).uid("totals").print()
    env.execute()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made), *sys.argv[1:])
