"""The Kafka sink in whole jobs that fail and restart, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.common.serialization import SerializationSchema, SimpleStringSchema
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.base import DeliveryGuarantee
from penstock.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.job.launched_job import LaunchedJob
from penstock.testing import Burst, Idle, ScriptedFailures, ScriptedSource, run_inline
from penstock.testing.servers.kafka_broker import KafkaBroker
from tests.servers.kafka_sink_case import committed_records, new_topic
from tests.unit.support import environment, eventually

pytestmark = pytest.mark.kafka


class KeyOfText(SerializationSchema):
    def serialize(self, element: Any) -> bytes:
        return str(int(element) % 7).encode()


def sink_on(kafka: KafkaBroker, topic: str, guarantee: DeliveryGuarantee) -> KafkaSink:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_key_serialization_schema(KeyOfText())
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(kafka.bootstrap)
        .set_delivery_guarantee(guarantee)
        .set_transactional_id_prefix(topic)
        .set_record_serializer(serializer)
        .build()
    )


def run_job(sink: KafkaSink, directory: Path, numbers: int = 10_000) -> None:
    settings = Configuration.from_dict(
        {
            "execution.checkpointing.dir": str(directory / "checkpoints"),
            "penstock.checkpoint.records": "2000",
            "penstock.micro-batch.max-records": "500",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.delay": "0 ms",
            "restart-strategy.fixed-delay.attempts": "5",
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(2)
    stream = env.from_source(
        NumberSequenceSource(0, numbers - 1), WatermarkStrategy.no_watermarks(), "numbers"
    )
    failing = stream.map(ScriptedFailures(directory, on=[3_700, 8_900]), Types.LONG())
    failing.map(str, Types.STRING()).sink_to(sink).name("the sink")
    run_inline(env).execute("numbers")


@pytest.mark.parametrize(
    "guarantee", [DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE]
)
def test_a_restarted_job_keeps_the_guarantee_of_its_sink(
    kafka: KafkaBroker, tmp_path: Path, guarantee: DeliveryGuarantee
) -> None:
    topic = new_topic(kafka, 3)
    run_job(sink_on(kafka, topic, guarantee), tmp_path)
    found = Counter(int(value) for _, value in committed_records(kafka.bootstrap, topic))
    assert set(found) == set(range(10_000))
    if guarantee is DeliveryGuarantee.EXACTLY_ONCE:
        assert set(found.values()) == {1}
    assert not list((tmp_path / "checkpoints").rglob("*.piece"))


def test_a_fresh_job_of_the_same_name_publishes_again(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    sink = sink_on(kafka, topic, DeliveryGuarantee.EXACTLY_ONCE)
    for directory in ("one", "other"):
        (tmp_path / directory).mkdir()
        run_job(sink, tmp_path / directory, numbers=1_000)
    found = Counter(int(value) for _, value in committed_records(kafka.bootstrap, topic))
    assert found == dict.fromkeys(range(1_000), 2)


def test_a_stop_is_restored_although_its_marker_has_expired(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = new_topic(kafka)
    sink = sink_on(kafka, topic, DeliveryGuarantee.EXACTLY_ONCE)

    def launch(script: Sequence[Any], **more: str) -> LaunchedJob:
        env = environment(1, **{"execution__checkpointing__dir": str(tmp_path), **more})
        source = ScriptedSource(script, Types.LONG())
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        numbers.map(str, Types.STRING()).sink_to(sink)
        job = env._launch("numbers")
        job.result()
        return job

    job = launch([Burst(range(50)), Idle()])
    eventually(lambda: sum(r.records_in for r in job.micro_batches()) >= 50)
    path = job.stop(str(tmp_path / "savepoints"), drain=False).result(20)
    assert job.wait_for_end(20)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    groups = [group.group_id for group in admin.list_consumer_groups().result().valid]
    markers = [group for group in groups if topic in group]
    assert markers
    for deleted in admin.delete_consumer_groups(markers).values():
        deleted.result()
    again = launch([Burst(range(100))], execution__state_recovery__path=path)
    assert again.wait_for_end(60)
    again.raise_failure()
    found = Counter(int(value) for _, value in committed_records(kafka.bootstrap, topic))
    assert found == dict.fromkeys(range(100), 1)
