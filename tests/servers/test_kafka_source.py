"""KafkaSource against a real broker: what is planned, read and committed."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.contracts.source import SplitRange
from penstock.connectors.kafka.source import enumerator as enumerating
from penstock.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaTopicPartition,
)
from penstock.errors import (
    LostRecordsError,
    MissingOffsetsError,
)
from penstock.testing.servers.kafka_broker import KafkaBroker
from tests.servers.kafka_source_case import (
    EARLIEST,
    LATEST,
    Opened,
    Records,
    add_partition,
    builder,
    commit,
    committed,
    delete_before,
    new_topic,
    produce,
    producer,
    read,
)

pytestmark = pytest.mark.kafka


@settings(max_examples=4, deadline=None)
@given(parallelism=st.integers(1, 4), sizes=st.lists(st.integers(20, 300), min_size=1, max_size=3))
def test_any_sequence_of_plans_reads_everything_once_and_in_order(
    kafka: KafkaBroker, filled: tuple[str, Records], parallelism: int, sizes: list[int]
) -> None:
    topic, written = filled
    source = cloudpickle.loads(cloudpickle.dumps(builder(kafka, topic).set_bounded(LATEST).build()))
    with Opened(source, parallelism=parallelism) as opened:
        most = itertools.cycle(sizes)
        ranges: list[SplitRange] = []
        seats: dict[str, set[int]] = defaultdict(set)
        while not opened.enumerator.finished():
            plan = opened.enumerator.plan(next(most))
            assert len(plan) == parallelism
            for subtask, parts in enumerate(plan):
                for part in parts:
                    seats[part.split].add(subtask)
            ranges += itertools.chain.from_iterable(plan)
        assert all(len(subtasks) == 1 for subtasks in seats.values())
        assert opened.enumerator.plan(10) == []
        assert opened.enumerator.next_poll() is None
    expected = {split: records for split, records in written.items() if records}
    assert read(source, ranges) == expected
    assert read(source, ranges) == expected


def test_a_restored_source_continues_from_its_positions_to_the_same_end(
    kafka: KafkaBroker,
) -> None:
    topic = new_topic(kafka)
    written = produce(kafka, topic, {0: 30, 1: 20})
    source = builder(kafka, topic).set_bounded(LATEST).build()
    with Opened(source) as first:
        found = first.read(first.enumerator.plan(10))
        positions, memory = first.enumerator.positions(), first.enumerator.snapshot_state()
    add_partition(kafka, topic, 3)
    produce(kafka, topic, {0: 5, 1: 5, 2: 5}, first=1000)
    with Opened(source, positions, memory) as second:
        assert second.enumerator.positions() == positions
        for split, records in second.all_there_is().items():
            found[split] += records
        assert second.enumerator.finished()
    assert found == written


def test_a_bounded_source_restored_from_an_unbounded_one_reads_new_partitions_too(
    kafka: KafkaBroker,
) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, {0: 3})
    with Opened(builder(kafka, topic).build()) as endless:
        endless.all_there_is()
        positions, memory = endless.enumerator.positions(), endless.enumerator.snapshot_state()
    add_partition(kafka, topic, 2)
    written = produce(kafka, topic, {1: 4})
    with Opened(builder(kafka, topic).set_bounded(LATEST).build(), positions, memory) as bounded:
        assert bounded.all_there_is() == written
        assert bounded.enumerator.finished()


def test_a_job_killed_before_its_first_checkpoint_restarts_at_its_initial_offsets(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, {0: 3})
    source = builder(kafka, topic).set_starting_offsets(LATEST).build()
    with Opened(source, work_dir=tmp_path, lineage="1"):
        written = produce(kafka, topic, {0: 4})
    add_partition(kafka, topic, 2)
    written |= produce(kafka, topic, {1: 2})
    with Opened(source, work_dir=tmp_path, lineage="1") as again:
        assert again.all_there_is() == written
    with Opened(source, work_dir=tmp_path, lineage="2") as anew:
        assert anew.enumerator.positions() == {f"{topic}-0": 7, f"{topic}-1": 2}
    changed = builder(kafka, topic).set_starting_offsets(EARLIEST).build()
    with Opened(changed, work_dir=tmp_path, lineage="1") as elsewhere:
        assert elsewhere.enumerator.positions() == {f"{topic}-0": 0, f"{topic}-1": 0}
    delete_before(kafka, topic, 5)
    with Opened(changed, work_dir=tmp_path, lineage="1") as elsewhere:
        assert elsewhere.enumerator.positions() == {f"{topic}-0": 5, f"{topic}-1": 0}


def test_a_bounded_job_killed_before_its_first_checkpoint_keeps_its_stopping_offsets(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    written = produce(kafka, topic, {0: 3})
    source = builder(kafka, topic).set_bounded(LATEST).build()
    with Opened(source, work_dir=tmp_path, lineage="1"):
        add_partition(kafka, topic, 2)
        produce(kafka, topic, {0: 4, 1: 4})
    with Opened(source, work_dir=tmp_path, lineage="1") as again:
        assert again.all_there_is() == written
        assert again.enumerator.finished()


def test_partitions_without_records_have_a_position_too(
    kafka: KafkaBroker, filled: tuple[str, Records]
) -> None:
    topic, _ = filled
    with Opened(builder(kafka, topic).build()) as opened:
        assert opened.enumerator.positions() == {f"{topic}-{n}": 0 for n in range(3)}
        assert not opened.enumerator.finished()


def starts(kafka: KafkaBroker, topic: str, initializer: KafkaOffsetsInitializer) -> list[int]:
    source = builder(kafka, topic).set_group_id(f"g-{topic}").set_starting_offsets(initializer)
    with Opened(source.build()) as opened:
        positions = opened.enumerator.positions()
    return [positions[f"{topic}-{number}"] for number in range(2)]


def test_every_initializer_starts_where_it_should(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka)
    client = producer(kafka)
    for seconds in range(1, 11):
        client.produce(topic, b"x", partition=0, timestamp=1_000 * seconds)
    client.flush()
    offsets, strategy = KafkaOffsetsInitializer.offsets, KafkaOffsetResetStrategy
    first, second = (KafkaTopicPartition(topic, number) for number in range(2))
    assert starts(kafka, topic, EARLIEST) == [0, 0]
    assert starts(kafka, topic, LATEST) == [10, 0]
    assert starts(kafka, topic, KafkaOffsetsInitializer.timestamp(4_500)) == [4, 0]
    assert starts(kafka, topic, KafkaOffsetsInitializer.timestamp(99_000)) == [10, 0]
    assert starts(kafka, topic, offsets({first: 7})) == [7, 0]
    assert starts(kafka, topic, offsets({first: 70, second: 0})) == [0, 0]
    assert starts(kafka, topic, offsets({first: 70}, strategy.LATEST)) == [10, 0]
    monkeypatch.setattr(enumerating, "_SETTLE_SECONDS", 0.3)
    with pytest.raises(LostRecordsError, match="resumes at offset 70, and Kafka has 0 to 10"):
        starts(kafka, topic, offsets({first: 70, second: 0}, strategy.NONE))
    committed = KafkaOffsetsInitializer.committed_offsets
    with pytest.raises(MissingOffsetsError, match=f"{topic}-0, {topic}-1"):
        starts(kafka, topic, committed())
    assert starts(kafka, topic, committed(strategy.LATEST)) == [10, 0]
    commit(kafka, f"g-{topic}", topic, {0: 6})
    assert starts(kafka, topic, committed(strategy.EARLIEST)) == [6, 0]


def test_single_partitions_are_read_alone(kafka: KafkaBroker, filled: tuple[str, Records]) -> None:
    topic, written = filled
    only = builder(kafka).set_partitions({KafkaTopicPartition(topic, 1)}).set_bounded(LATEST)
    with Opened(only.build()) as opened:
        assert opened.all_there_is() == {f"{topic}-1": written[f"{topic}-1"]}


def test_offsets_are_committed_to_the_group_only_when_a_checkpoint_is_completed(
    kafka: KafkaBroker,
) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, {0: 10, 1: 10})
    with Opened(builder(kafka, topic).set_group_id(f"g-{topic}").build()) as opened:
        opened.enumerator.plan(10)
        positions = opened.enumerator.positions()
        opened.enumerator.plan(10)
        time.sleep(0.3)
        assert committed(kafka, f"g-{topic}", topic, 2) == [-1001, -1001]
        opened.enumerator.notify_checkpoint_complete(positions)
        opened.until(lambda: committed(kafka, f"g-{topic}", topic, 2) == [5, 5])
        # The last one is still committed by close.
        opened.enumerator.notify_checkpoint_complete(opened.enumerator.positions())
    assert committed(kafka, f"g-{topic}", topic, 2) == [10, 10]


def test_committing_offsets_can_be_disabled(kafka: KafkaBroker) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, {0: 10, 1: 10})
    quiet = builder(kafka, topic).set_group_id(f"g-{topic}")
    quiet.set_property("commit.offsets.on.checkpoint", "false")
    with Opened(quiet.build()) as opened:
        opened.enumerator.plan(10)
        opened.enumerator.notify_checkpoint_complete(opened.enumerator.positions())
    assert committed(kafka, f"g-{topic}", topic, 2) == [-1001, -1001]


def transaction(kafka: KafkaBroker, topic: str) -> Iterator[Producer]:
    client = producer(kafka, transactional_id=f"tx-{uuid.uuid4().hex[:8]}")
    client.init_transactions(20)
    while True:
        client.begin_transaction()
        yield client


def test_only_committed_records_are_read_whatever_gaps_transactions_leave(
    kafka: KafkaBroker,
) -> None:
    topic = new_topic(kafka, 1)
    source = builder(kafka, topic).set_property("isolation.level", "read_committed").build()
    transactions = transaction(kafka, topic)
    expected = []
    with Opened(source) as opened:
        for number in range(6):
            client = next(transactions)
            values = [f"{number}/{n}" for n in range(5)]
            for value in values:
                client.produce(topic, value.encode())
            client.flush()
            if number % 2:
                client.abort_transaction(20)
            else:
                client.commit_transaction(20)
                expected += values
        found: list[str] = []

        def go_on() -> int:
            found.extend(opened.all_there_is(7).get(f"{topic}-0", []))
            return len(found)

        opened.until(lambda: go_on() >= 15)
        open_one = next(transactions)
        open_one.produce(topic, b"open")
        open_one.flush()
        time.sleep(0.3)
        while plan := opened.enumerator.plan(100):
            assert opened.read(plan) in ({}, {f"{topic}-0": []})
        open_one.commit_transaction(20)
        opened.until(lambda: go_on() > 15)
    assert found == [*expected, "open"]
    whole = [SplitRange(f"{topic}-0", n, n + 3) for n in range(0, 36, 3)]
    assert read(source, whole)[f"{topic}-0"] == expected
    dirty = builder(kafka, topic).build()
    assert len(read(dirty, [SplitRange(f"{topic}-0", 0, 36)])[f"{topic}-0"]) == 30


def test_rows_have_keys_timestamps_headers_partitions_and_offsets(kafka: KafkaBroker) -> None:
    topic = new_topic(kafka, 1)
    client = producer(kafka)
    client.produce(topic, b"v", key=b"k", timestamp=1234, headers=[("h", b"x")])
    client.produce(topic, None, key=b"k", timestamp=1235)
    client.flush()
    parts = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    fields = KafkaRecordDeserializationSchema.fields(*parts, key=SimpleStringSchema())
    source = builder(kafka, topic).set_deserializer(fields).build()
    (chunk,) = source.read(SplitRange(f"{topic}-0", 0, 2))
    place = {"topic": topic, "partition": 0, "key": "k"}
    assert chunk == [
        Row(**place, offset=0, timestamp=1234, value=b"v", headers=[("h", b"x")]),
        Row(**place, offset=1, timestamp=1235, value=None, headers=[]),
    ]


def test_a_closed_source_leaves_no_thread(kafka: KafkaBroker, filled: tuple[str, Records]) -> None:
    with Opened(builder(kafka, filled[0]).build()):
        assert "kafka-source" in {thread.name for thread in threading.enumerate()}
    assert "kafka-source" not in {thread.name for thread in threading.enumerate()}
