"""KafkaSource while partitions, records, topics and the broker appear and disappear."""

from __future__ import annotations

import json
import logging
import time
import uuid

import pytest
from confluent_kafka.admin import AdminClient

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.contracts.source import SplitRange
from penstock.connectors.kafka.source import enumerator as enumerating
from penstock.connectors.kafka.source import partition_monitor as watching
from penstock.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaTopicPartition,
)
from penstock.errors import (
    KafkaUnavailableError,
    LostRecordsError,
    MissingTopicError,
)
from penstock.testing.servers.kafka_broker import KafkaBroker
from tests.servers.kafka_source_case import (
    LATEST,
    Opened,
    Records,
    add_partition,
    builder,
    committed,
    delete_before,
    delete_topic,
    new_topic,
    produce,
    read,
)

pytestmark = pytest.mark.kafka


def test_new_records_wake_the_loop(kafka: KafkaBroker) -> None:
    topic = new_topic(kafka)
    with Opened(builder(kafka, topic).build()) as opened:
        assert opened.enumerator.plan(10) == []
        assert opened.enumerator.next_poll() is None
        time.sleep(0.2)
        before = opened.wakes
        written = produce(kafka, topic, {1: 3})
        opened.until(lambda: opened.wakes > before)
        assert opened.enumerator.next_poll() == 0.0
        assert opened.read(opened.next_plan()) == written


def test_new_partitions_are_discovered_and_read_from_their_beginning(kafka: KafkaBroker) -> None:
    topic = new_topic(kafka, 1)
    source = builder(kafka, topic).set_starting_offsets(LATEST)
    source.set_property("partition.discovery.interval.ms", "100")
    produce(kafka, topic, {0: 5})
    with Opened(source.build()) as opened:
        add_partition(kafka, topic, 2)
        written = produce(kafka, topic, {1: 7})
        assert opened.read(opened.next_plan()) == written
        assert opened.enumerator.positions() == {f"{topic}-0": 5, f"{topic}-1": 7}


def test_partitions_created_while_no_job_ran_are_read_from_their_beginning(
    kafka: KafkaBroker,
) -> None:
    prefix = f"late-{uuid.uuid4().hex[:8]}"
    source = builder(kafka).set_topic_pattern(f"{prefix}.*").set_starting_offsets(LATEST).build()
    with Opened(source) as opened:
        positions, memory = opened.enumerator.positions(), opened.enumerator.snapshot_state()
    assert positions == {}
    topic = kafka.create_topic(f"{prefix}-a", 1)
    written = produce(kafka, topic, {0: 4})
    with Opened(source, positions, memory) as opened:
        assert opened.all_there_is() == written


def test_unsubscribed_topics_are_no_longer_read(
    kafka: KafkaBroker, filled: tuple[str, Records], caplog: pytest.LogCaptureFixture
) -> None:
    topic, _ = filled
    with Opened(builder(kafka, topic).build(), {"gone-0": 7, f"{topic}-0": 300}) as opened:
        assert opened.enumerator.positions() == {
            f"{topic}-0": 300,
            f"{topic}-1": 0,
            f"{topic}-2": 0,
        }
    assert "gone-0 is no longer subscribed; its position was 7" in caplog.text


def test_positions_before_retention_are_rejected_at_the_start_and_while_running(
    kafka: KafkaBroker,
) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, {0: 30})
    source = builder(kafka, topic).build()
    with Opened(source) as running:
        running.enumerator.plan(10)
        delete_before(kafka, topic, 20)
        with pytest.raises(LostRecordsError, match=r"Kafka has 20 to 30.* no longer retained"):
            running.until(lambda: running.enumerator.plan(1) is None)
    with pytest.raises(LostRecordsError, match=f"'{topic}', partition 0.*restore another"):
        Opened(source, {f"{topic}-0": 10})
    with pytest.raises(LostRecordsError, match="at offset 10, and Kafka has 20 to 30"):
        read(source, [SplitRange(f"{topic}-0", 10, 30)])


def test_a_job_may_skip_lost_records(kafka: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    topic = new_topic(kafka, 1)
    written = produce(kafka, topic, {0: 30})
    delete_before(kafka, topic, 20)
    source = builder(kafka, topic).set_property("penstock.kafka.on-lost-records", "skip").build()
    with Opened(source, {f"{topic}-0": 5}) as opened:
        assert opened.all_there_is() == {f"{topic}-0": written[f"{topic}-0"][20:]}
    assert "15 offsets are lost: the job continues at offset 20 instead of 5" in caplog.text


def test_records_already_read_may_be_deleted(kafka: KafkaBroker) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, {0: 30})
    source = (
        builder(kafka, topic)
        .set_bounded(KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 10}))
        .build()
    )
    with Opened(source) as opened:
        opened.all_there_is()
        positions, memory = opened.enumerator.positions(), opened.enumerator.snapshot_state()
    delete_before(kafka, topic, 20)
    with Opened(source, positions, memory) as opened:
        assert opened.enumerator.finished()


def test_a_position_beyond_the_end_is_rejected(
    kafka: KafkaBroker, filled: tuple[str, Records], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enumerating, "_SETTLE_SECONDS", 0.3)
    topic, _ = filled
    with pytest.raises(LostRecordsError, match="was created again or lost its end"):
        Opened(builder(kafka, topic).build(), {f"{topic}-0": 301})


@pytest.mark.parametrize("how", ["rejected", "skip", "pattern", "another cluster"])
def test_a_recreated_topic_is_not_read_from_the_middle(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, {0: 10})
    described = builder(kafka, *([] if how == "pattern" else [topic]))
    if how == "pattern":
        described.set_topic_pattern(topic)
    if how == "skip":
        described.set_property("penstock.kafka.on-lost-records", "skip")
    source = described.build()
    with Opened(source) as opened:
        opened.all_there_is()
        positions, memory = opened.enumerator.positions(), opened.enumerator.snapshot_state()
    with Opened(source, positions, memory) as again:
        assert again.enumerator.positions() == positions
        memory = again.enumerator.snapshot_state()
    delete_topic(kafka, topic)
    kafka.create_topic(topic, 1)
    written = produce(kafka, topic, {0: 30})
    if how == "another cluster":
        memory = memory.replace(json.dumps(cluster_of(kafka)).encode(), b'"another"')
    if how == "rejected":
        with pytest.raises(
            LostRecordsError, match=f"'{topic}'.*was deleted and created again.*skip"
        ):
            Opened(source, positions, memory)
        return
    with Opened(source, positions, memory) as restored:
        expected = written[f"{topic}-0"]
        assert restored.all_there_is() == {
            f"{topic}-0": expected[10:] if how == "another cluster" else expected
        }
    assert ("the topic was recreated" in caplog.text) is (how != "another cluster")


def cluster_of(kafka: KafkaBroker) -> str | None:
    return AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10).cluster_id


def test_missing_topics_are_named(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumerating, "_MISSING_SECONDS", 0.0)
    with pytest.raises(MissingTopicError, match=f"{kafka.bootstrap} has no topic 'nowhere'"):
        Opened(builder(kafka, "nowhere").build())


def test_a_deleted_named_topic_is_reported_as_missing(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_DELETED_SECONDS", 0.3)
    kept, other, only = (new_topic(kafka, 1) for _ in range(3))
    for topics in ((kept, other), (only,)):
        with Opened(builder(kafka, *topics).build()) as opened:
            delete_topic(kafka, topics[-1])
            with pytest.raises(MissingTopicError, match=f"no partition 0 of topic '{topics[-1]}'"):
                opened.next_plan()


def test_a_deleted_topic_of_a_pattern_is_dropped_and_does_not_delay_the_others(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watching, "_DELETED_SECONDS", 3.0)
    prefix = f"gone-{uuid.uuid4().hex[:8]}"
    kept, deleted = (kafka.create_topic(f"{prefix}-{name}", 1) for name in "ab")
    produce(kafka, deleted, {0: 3})
    source = (
        builder(kafka)
        .set_topic_pattern(f"{prefix}.*")
        .set_property("partition.discovery.interval.ms", "100")
        .build()
    )
    with Opened(source) as opened:
        assert opened.all_there_is() != {}
        delete_topic(kafka, deleted)
        written = produce(kafka, kept, {0: 4})
        assert opened.read(opened.next_plan()) == written
        assert opened.enumerator.positions() == {f"{kept}-0": 4, f"{deleted}-0": 3}
        opened.until(lambda: opened.enumerator.plan(1) or len(opened.enumerator.positions()) == 1)
        assert f"no longer read: partition 0 of topic '{deleted}'" in caplog.text
        kafka.create_topic(deleted, 1)
        written = produce(kafka, deleted, {0: 2})
        assert opened.read(opened.next_plan()) == written


def test_a_restored_source_drops_a_topic_that_was_deleted_meanwhile(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(enumerating, "_SETTLE_SECONDS", 0.3)
    topic = new_topic(kafka, 1)
    written = produce(kafka, topic, {0: 2})
    positions = {f"{topic}-0": 0, f"{topic}x-0": 7}
    pattern = builder(kafka).set_topic_pattern(f"{topic}.*").build()
    with Opened(pattern, positions) as opened:
        assert opened.all_there_is() == written
    assert f"no longer read: partition 0 of topic '{topic}x'" in caplog.text
    with pytest.raises(MissingTopicError, match=f"no partition 5 of topic '{topic}'"):
        Opened(builder(kafka, topic).build(), {f"{topic}-5": 7})


def test_an_unreachable_broker_is_reported_after_a_timeout() -> None:
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers("127.0.0.1:1")
        .set_topics("t")
        .set_property("default.api.timeout.ms", "500")
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    with pytest.raises(KafkaUnavailableError, match=r"no Kafka broker answered at 127\.0\.0\.1:1"):
        Opened(source)
    with pytest.raises(KafkaUnavailableError, match=r"127\.0\.0\.1:1"):
        read(source, [SplitRange("t-0", 0, 1)])


def test_a_killed_broker_is_waited_for(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(kafka, 1)
    written = produce(kafka, topic, {0: 10})
    caplog.set_level(logging.WARNING)
    with Opened(builder(kafka, topic).set_group_id(f"g-{topic}").build()) as opened:
        found = opened.all_there_is()
        kafka.kill()
        opened.until(lambda: "Kafka is unreachable" in caplog.text)
        assert opened.enumerator.plan(10) == []
        opened.enumerator.notify_checkpoint_complete(opened.enumerator.positions())
        kafka.start()
        more = produce(kafka, topic, {0: 5}, first=10)
        found[f"{topic}-0"] += opened.read(opened.next_plan())[f"{topic}-0"]
        opened.until(lambda: committed(kafka, f"g-{topic}", topic, 1) == [10])
    assert found[f"{topic}-0"] == written[f"{topic}-0"] + more[f"{topic}-0"]
    assert caplog.text.count("Kafka is unreachable") == 1
    assert "Kafka is reachable again" in caplog.text


def test_an_unresponsive_broker_is_waited_for_and_does_not_delay_the_end(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(kafka, 1)
    source = builder(kafka, topic).set_group_id(f"g-{topic}")
    source.set_property("default.api.timeout.ms", "2000")
    with Opened(source.build()) as opened:
        # Longer than its session: it returns with another epoch.
        kafka.pause()
        opened.until(lambda: "Kafka is unreachable" in caplog.text)
        kafka.resume()
        written = produce(kafka, topic, {0: 5})
        assert opened.read(opened.next_plan()) == written
        kafka.pause()
        opened.enumerator.notify_checkpoint_complete(opened.enumerator.positions())
        started = time.monotonic()
    # The client itself would wait for most of a minute.
    assert time.monotonic() - started < 40
    kafka.resume()
