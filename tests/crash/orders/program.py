"""The job: `python -m tests.crash.orders.program VARIANT.json` starts or resumes it.

Orders from Kafka → number and total of each customer → Kafka and PostgreSQL, both exactly once. It
ends by itself at offsets that are known from the beginning. Starting it again after a kill
says nothing new.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from penstock.common import Configuration, Row, SerializationSchema, Types, WatermarkStrategy
from penstock.common.config.checkpoint_options import CHECKPOINT_HISTORY
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.base import DeliveryGuarantee
from penstock.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTopicPartition,
)
from penstock.datastream.connectors.postgres import PostgresSink
from penstock.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import PenstockError
from penstock.testing import CrashPoint, arm, run_inline
from tests.crash.orders.broken import break_as_told

JOB = "orders"
FREEZE_AT = "PENSTOCK_TEST_FREEZE_AT"
"""`point:nth`: where the process stops and waits until the test lets it continue."""

ORDER = Types.ROW_NAMED(
    ["id", "customer", "cents", "note"],
    [Types.LONG(), Types.STRING(), Types.LONG(), Types.STRING()],
)
TOTAL = Types.ROW_NAMED(
    ["customer", "n", "order_id", "total", "note"],
    [Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG(), Types.STRING()],
)


class Variant(msgspec.Struct, frozen=True):
    """What a run of the job looks like; everything but faults."""

    directory: str
    bootstrap: str = ""
    dsn: str = ""
    orders: str = "orders"
    totals: str = "totals"
    table: str = "totals"
    stops: tuple[int, ...] = ()
    """Where each partition of the orders ends."""
    parallelism: int = 2
    backend: str = "hashmap"
    interval_ms: int = 300
    max_batch: int = 4_000
    two_phase: bool = True
    """Whether the database prepares transactions, or only learns of rows when they count."""
    unaligned: bool = False
    client_timeout_ms: int = 3_000
    transaction_timeout_ms: int = 5_000
    spark: bool = False
    settings: dict[str, str] = {}

    @property
    def checkpoints(self) -> Path:
        """Its checkpoint directory."""
        return Path(self.directory) / "checkpoints"


class Totals(KeyedProcessFunction[str, Row, Row]):
    """Numbers the orders of a customer, and adds them up."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        id_, customer, cents, note = value
        n, total = (self._n.value() or 0) + 1, (self._total.value() or 0) + cents
        self._n.update(n)
        self._total.update(total)
        yield Row(customer, n, id_, total, note)


class CustomerKey(SerializationSchema):
    """The customer of a total."""

    def serialize(self, element: Row) -> bytes:
        customer: str = element[0]
        return customer.encode()


def build(variant: Variant) -> StreamExecutionEnvironment:
    """Make the program."""
    env = StreamExecutionEnvironment.get_execution_environment(configuration(variant))
    if not variant.spark:
        run_inline(env)
    env.set_parallelism(variant.parallelism)
    totals = (
        env.from_source(source(variant), WatermarkStrategy.no_watermarks(), "orders")
        .uid("orders")
        .key_by(lambda order: order[1], Types.STRING())
        .process(Totals(), TOTAL)
        .uid("totals")
    )
    totals.sink_to(kafka_sink(variant)).uid("topic")
    totals.sink_to(postgres_sink(variant)).uid("table")
    return env


def source(variant: Variant) -> KafkaSource:
    """Read all orders, and no more."""
    stops = {
        KafkaTopicPartition(variant.orders, number): stop
        for number, stop in enumerate(variant.stops)
    }
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(variant.bootstrap)
        .set_group_id(f"{JOB}-{variant.orders}")
        .set_topics(variant.orders)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.offsets(stops))
        .set_value_only_deserializer(
            JsonRowDeserializationSchema.builder().type_info(ORDER).build()
        )
        .set_property("request.timeout.ms", str(variant.client_timeout_ms))
        .build()
    )


def kafka_sink(variant: Variant) -> KafkaSink:
    """Publish totals, with the customer as the key."""
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(variant.totals)
        .set_key_serialization_schema(CustomerKey())
        .set_value_serialization_schema(
            JsonRowSerializationSchema.builder().with_type_info(TOTAL).build()
        )
        .build()
    )
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(variant.bootstrap)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(f"crash-{variant.totals}")
        .set_record_serializer(serializer)
        .set_property("request.timeout.ms", str(variant.client_timeout_ms))
        .set_property("max.block.ms", str(variant.client_timeout_ms))
        .set_property("transaction.timeout.ms", str(variant.transaction_timeout_ms))
        .build()
    )


def postgres_sink(variant: Variant) -> PostgresSink:
    """Insert a row for each order."""
    return (
        PostgresSink.builder()
        .set_dsn(variant.dsn)
        .set_table(variant.table)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_two_phase(variant.two_phase)
        .build()
    )


def configuration(variant: Variant) -> Configuration:
    """Spell out the settings of a variant."""
    directory = Path(variant.directory)
    settings = {
        "penstock.job-id": JOB,
        "execution.checkpointing.dir": str(variant.checkpoints),
        "execution.checkpointing.interval": f"{variant.interval_ms} ms",
        "execution.checkpointing.unaligned.enabled": str(variant.unaligned).lower(),
        CHECKPOINT_HISTORY.key: "1000",
        "penstock.work-dir": str(directory / "work"),
        "penstock.state.local-dir": str(directory / "local"),
        "penstock.micro-batch.max-records": str(variant.max_batch),
        "penstock.micro-batch.initial-records": str(variant.max_batch),
        "penstock.source.poll-interval": "20 ms",
        "state.backend.type": variant.backend,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "200",
        "restart-strategy.fixed-delay.delay": "300 ms",
        "heartbeat.interval": "300 ms",
        "heartbeat.timeout": "3 s",
    }
    return Configuration.from_dict({**settings, **variant.settings})


def main(path: Path) -> int:
    """Run it; the exit code is 0 only if the job has finished."""
    variant = msgspec.json.decode(path.read_bytes(), type=Variant)
    break_as_told(os.environ)
    if where := os.environ.get(FREEZE_AT):
        point, nth = where.split(":")
        arm(CrashPoint(point), int(nth), lambda: os.kill(os.getpid(), signal.SIGSTOP))
    try:
        build(variant).execute(JOB)
    except PenstockError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print("finished")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
