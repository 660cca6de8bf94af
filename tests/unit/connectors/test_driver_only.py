"""Credentials of sources and sinks are not shipped to tasks."""

from __future__ import annotations

import subprocess
import sys

import cloudpickle
import pyarrow as pa
import pytest

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.contracts.source import Source, SplitRange
from penstock.connectors.driver_only import DriverOnly
from penstock.datastream.connectors.kafka import KafkaSource
from penstock.datastream.connectors.nats import NatsSource

KAFKA = (
    KafkaSource.builder()
    .set_bootstrap_servers("127.0.0.1:1")
    .set_topics("orders")
    .set_property("sasl.password", "s3cret")
    .set_property("default.api.timeout.ms", "1")
    .set_value_only_deserializer(SimpleStringSchema())
    .build()
)
NATS = (
    NatsSource.builder()
    .set_servers("nats://me:s3cret@127.0.0.1:1")
    .set_stream("orders")
    .set_durable("job")
    .set_property("password", "s3cret")
    .build()
)


def in_another_process(program: str, given: bytes) -> str:
    return subprocess.run(
        [sys.executable, "-c", f"import sys, pickle\n{program}"],
        input=given,
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout.decode()


@pytest.mark.parametrize("source", [KAFKA, NATS])
def test_passwords_of_a_source_do_not_travel(source: Source) -> None:
    assert b"s3cret" not in cloudpickle.dumps(source)


def test_a_task_in_another_process_decodes_records_without_the_drivers_values() -> None:
    program = """
import pyarrow as pa
source, part, other = pickle.load(sys.stdin.buffer)
print(other.deserialize(b"three"))
print(next(source.read_batches([pa.record_batch({"value": [b"one", b"two"]})])))
try:
    next(source.read(part))
except RuntimeError as error:
    print(error)
"""
    given = cloudpickle.dumps((KAFKA, SplitRange("orders-0", 0, 2), NATS))
    assert in_another_process(program, given).splitlines() == [
        "three",
        "['one', 'two']",
        "this part of a source or sink exists only in the process that built the job",
    ]


def test_a_copy_in_the_same_process_holds_it_again() -> None:
    copied = cloudpickle.loads(cloudpickle.dumps(DriverOnly("s3cret")))
    assert copied.get() == "s3cret"
    assert "s3cret" not in repr(copied)
    batches = iter([pa.record_batch({"value": [b"one"]})])
    assert list(cloudpickle.loads(cloudpickle.dumps(KAFKA)).read_batches(batches)) == [["one"]]
