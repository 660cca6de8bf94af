import json
from collections.abc import Callable

import cloudpickle
import pytest

from penstock.common import Types
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.contracts.source import Boundedness, SplitRange
from penstock.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from penstock.errors import InvalidJobError


def complete() -> KafkaSourceBuilder:
    return (
        KafkaSource.builder()
        .set_bootstrap_servers("localhost:1")
        .set_topics("orders")
        .set_value_only_deserializer(SimpleStringSchema())
    )


def test_a_complete_source_is_built_and_pickled_to_tasks() -> None:
    source = complete().build()
    assert source.boundedness() is Boundedness.CONTINUOUS_UNBOUNDED
    assert source.type_info() == Types.STRING()
    ranges = [SplitRange("orders-0", 1, 2)]
    twin = cloudpickle.loads(cloudpickle.dumps(source))
    assert twin.spark_read(ranges) == source.spark_read(ranges)


def test_missing_settings_are_named() -> None:
    with pytest.raises(InvalidJobError, match=r"bootstrap\.servers is required"):
        KafkaSource.builder().build()
    with pytest.raises(InvalidJobError, match="No subscribe mode"):
        KafkaSource.builder().set_bootstrap_servers("x:1").build()
    with pytest.raises(InvalidJobError, match="Deserialization schema is required"):
        KafkaSource.builder().set_bootstrap_servers("x:1").set_topics("t").build()


@pytest.mark.parametrize(
    "again",
    [
        lambda builder: builder.set_topics("t"),
        lambda builder: builder.set_topic_pattern("t.*"),
        lambda builder: builder.set_partitions({KafkaTopicPartition("t", 0)}),
    ],
)
def test_a_source_subscribes_once(again: Callable[[KafkaSourceBuilder], None]) -> None:
    with pytest.raises(InvalidJobError, match="already set for consumption"):
        again(complete())


def test_committed_offsets_need_a_group() -> None:
    committed = KafkaOffsetsInitializer.committed_offsets()
    for builder in (complete().set_starting_offsets(committed), complete().set_bounded(committed)):
        with pytest.raises(InvalidJobError, match=r"group\.id is required"):
            builder.build()
        builder.set_group_id("g").build()


def test_committing_needs_a_group() -> None:
    with pytest.raises(InvalidJobError, match=r"group\.id is required when offset commit"):
        complete().set_property("commit.offsets.on.checkpoint", "true").build()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("penstock.kafka.on-lost-records", "maybe"),
        ("partition.discovery.interval.ms", "often"),
        ("default.api.timeout.ms", "1 min"),
        ("default.api.timeout.ms", "-5"),
    ],
)
def test_a_source_property_with_an_invalid_value_is_rejected(name: str, value: str) -> None:
    with pytest.raises(InvalidJobError, match=name):
        complete().set_property(name, value).build()


def test_objects_that_are_no_schema_or_initializer_are_rejected() -> None:
    with pytest.raises(InvalidJobError, match="DeserializationSchema"):
        KafkaSource.builder().set_value_only_deserializer(SimpleStringSchema)  # type: ignore[arg-type]
    with pytest.raises(InvalidJobError, match="KafkaRecordDeserializationSchema"):
        KafkaSource.builder().set_deserializer(SimpleStringSchema())  # type: ignore[arg-type]
    with pytest.raises(InvalidJobError, match="KafkaOffsetsInitializer"):
        KafkaSource.builder().set_starting_offsets("earliest")  # type: ignore[arg-type]
    with pytest.raises(InvalidJobError, match="regular expression"):
        KafkaSource.builder().set_topic_pattern("*")
    with pytest.raises(InvalidJobError, match="KafkaTopicPartition objects; got 5"):
        KafkaSource.builder().set_partitions(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidJobError, match=r"KafkaTopicPartition objects; got \[\{\}\]"):
        KafkaSource.builder().set_partitions([{}])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "method", ["set_bootstrap_servers", "set_group_id", "set_client_id_prefix"]
)
def test_values_that_are_not_strings_are_rejected(method: str) -> None:
    with pytest.raises(InvalidJobError, match=rf"{method}\(\) takes a string; got None"):
        getattr(KafkaSource.builder(), method)(None)


def test_spark_reads_exactly_the_offsets_of_the_ranges() -> None:
    source = complete().set_group_id("g").set_property("isolation.level", "read_committed").build()
    ranges = [SplitRange("orders-1", 5, 9), SplitRange("or-ders-0", 0, 3)]
    read = source.spark_read(ranges)
    assert source.spark_format() == "kafka"
    assert read.columns == ("value",)
    assert {name: json.loads(read.options[name]) for name in ("assign", "endingOffsets")} == {
        "assign": {"orders": [1], "or-ders": [0]},
        "endingOffsets": {"orders": {"1": 9}, "or-ders": {"0": 3}},
    }
    assert json.loads(read.options["startingOffsets"]) == {"orders": {"1": 5}, "or-ders": {"0": 0}}
    assert read.options["failOnDataLoss"] == "true"
    assert read.options["kafkaConsumer.pollTimeoutMs"] == "60000"
    assert read.options["kafka.group.id"] == "g"
    assert read.options["kafka.isolation.level"] == "read_committed"
    assert "includeHeaders" not in read.options


def test_micro_batches_share_one_group_so_that_spark_caches_its_consumers() -> None:
    source = complete().build()
    first, second = (source.spark_read([SplitRange("orders-1", n, n + 1)]) for n in range(2))
    assert first.options["kafka.group.id"] == second.options["kafka.group.id"]
    other = complete().build().spark_read([SplitRange("orders-1", 0, 1)])
    assert other.options["kafka.group.id"] != first.options["kafka.group.id"]


def test_spark_reads_only_the_columns_that_are_needed() -> None:
    fields = KafkaRecordDeserializationSchema.fields("key", "headers")
    read = complete().set_deserializer(fields).build().spark_read([SplitRange("orders-0", 0, 1)])
    assert read.columns == ("key", "headers")
    assert read.options["includeHeaders"] == "true"
