"""KafkaSource against a real broker: what is planned, read, committed, lost and found again."""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.kafka import enumerator as enumerating
from penstock.connectors.kafka import watcher as watching
from penstock.connectors.source import EnumeratorContext, Plan, SplitRange
from penstock.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from penstock.errors import (
    KafkaUnavailableError,
    LostRecordsError,
    MissingOffsetsError,
    MissingTopicError,
)
from penstock.testing.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.kafka

EARLIEST, LATEST = KafkaOffsetsInitializer.earliest(), KafkaOffsetsInitializer.latest()
Records = dict[str, list[str]]


def new_topic(kafka: KafkaBroker, partitions: int = 2) -> str:
    return kafka.create_topic(f"source-{uuid.uuid4().hex[:8]}", partitions)


def producer(kafka: KafkaBroker, **settings: Any) -> Producer:
    told = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "linger.ms": 1, **told})


def produce(kafka: KafkaBroker, topic: str, counts: dict[int, int], first: int = 0) -> Records:
    """Write numbered texts into partitions, and tell what was written."""
    client = producer(kafka)
    written: Records = {}
    for partition, count in counts.items():
        values = [f"{partition}/{number}" for number in range(first, first + count)]
        for value in values:
            client.produce(topic, value.encode(), partition=partition)
        written[f"{topic}-{partition}"] = values
    client.flush()
    return written


def builder(kafka: KafkaBroker, *topics: str) -> KafkaSourceBuilder:
    described = (
        KafkaSource.builder()
        .set_bootstrap_servers(kafka.bootstrap)
        .set_value_only_deserializer(SimpleStringSchema())
    )
    return described.set_topics(*topics) if topics else described


class Opened:
    """An enumerator, and what it called for."""

    def __init__(
        self,
        source: KafkaSource,
        positions: dict[str, int] | None = None,
        memory: bytes = b"",
        parallelism: int = 2,
        work_dir: Path = Path("/nowhere"),
        life: str = "",
    ) -> None:
        self.wakes = 0
        self.source = source
        context = EnumeratorContext(parallelism, work_dir, time.time, self._wake, life=life)
        self.enumerator = source.enumerator(context)
        if memory:
            self.enumerator.recall(memory)
        self.enumerator.start(positions or {})

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.enumerator.close()

    def _wake(self) -> None:
        self.wakes += 1

    def read(self, plan: Plan) -> Records:
        return read(self.source, list(itertools.chain.from_iterable(plan)))

    def all_there_is(self, most: int = 1000) -> Records:
        """Plan and read until there is nothing more now."""
        found: Records = defaultdict(list)
        while plan := self.enumerator.plan(most):
            for split, records in self.read(plan).items():
                found[split] += records
        return dict(found)

    def until(self, happens: Callable[[], object], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not happens():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.02)

    def next_plan(self) -> Plan:
        plan: Plan = []

        def planned() -> Plan:
            nonlocal plan
            plan = self.enumerator.plan(1000)
            return plan

        self.until(planned)
        return plan


def read(source: KafkaSource, ranges: list[SplitRange]) -> Records:
    found: Records = defaultdict(list)
    for part in ranges:
        found[part.split] += itertools.chain.from_iterable(source.read_lists(part))
    return dict(found)


@pytest.fixture(scope="module")
def filled(kafka: KafkaBroker) -> tuple[str, Records]:
    topic = new_topic(kafka, 3)
    return topic, produce(kafka, topic, {0: 300, 1: 50, 2: 0})


@settings(max_examples=4, deadline=None)
@given(parallelism=st.integers(1, 4), sizes=st.lists(st.integers(20, 300), min_size=1, max_size=3))
def test_any_plans_read_everything_once_and_in_order(
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


def test_a_restored_source_goes_on_behind_its_positions_to_the_same_end(
    kafka: KafkaBroker,
) -> None:
    topic = new_topic(kafka)
    written = produce(kafka, topic, {0: 30, 1: 20})
    source = builder(kafka, topic).set_bounded(LATEST).build()
    with Opened(source) as first:
        found = first.read(first.enumerator.plan(10))
        positions, memory = first.enumerator.positions(), first.enumerator.memory()
    add_partition(kafka, topic, 3)
    produce(kafka, topic, {0: 5, 1: 5, 2: 5}, first=1000)
    with Opened(source, positions, memory) as second:
        assert second.enumerator.positions() == positions
        for split, records in second.all_there_is().items():
            found[split] += records
        assert second.enumerator.finished()
    assert found == written


def test_a_bounded_source_restored_from_an_endless_one_reads_new_partitions_too(
    kafka: KafkaBroker,
) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, {0: 3})
    with Opened(builder(kafka, topic).build()) as endless:
        endless.all_there_is()
        positions, memory = endless.enumerator.positions(), endless.enumerator.memory()
    add_partition(kafka, topic, 2)
    written = produce(kafka, topic, {1: 4})
    with Opened(builder(kafka, topic).set_bounded(LATEST).build(), positions, memory) as bounded:
        assert bounded.all_there_is() == written
        assert bounded.enumerator.finished()


def test_a_job_that_dies_before_its_first_checkpoint_begins_again_where_it_began(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, {0: 3})
    source = builder(kafka, topic).set_starting_offsets(LATEST).build()
    with Opened(source, work_dir=tmp_path, life="1"):
        written = produce(kafka, topic, {0: 4})
    add_partition(kafka, topic, 2)
    written |= produce(kafka, topic, {1: 2})
    with Opened(source, work_dir=tmp_path, life="1") as again:
        assert again.all_there_is() == written
    with Opened(source, work_dir=tmp_path, life="2") as anew:
        assert anew.enumerator.positions() == {f"{topic}-0": 7, f"{topic}-1": 2}
    changed = builder(kafka, topic).set_starting_offsets(EARLIEST).build()
    with Opened(changed, work_dir=tmp_path, life="1") as elsewhere:
        assert elsewhere.enumerator.positions() == {f"{topic}-0": 0, f"{topic}-1": 0}
    delete_before(kafka, topic, 5)
    with Opened(changed, work_dir=tmp_path, life="1") as elsewhere:
        assert elsewhere.enumerator.positions() == {f"{topic}-0": 5, f"{topic}-1": 0}


def test_a_bounded_job_that_dies_before_its_first_checkpoint_keeps_its_end(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    written = produce(kafka, topic, {0: 3})
    source = builder(kafka, topic).set_bounded(LATEST).build()
    with Opened(source, work_dir=tmp_path, life="1"):
        add_partition(kafka, topic, 2)
        produce(kafka, topic, {0: 4, 1: 4})
    with Opened(source, work_dir=tmp_path, life="1") as again:
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


def test_every_initializer_begins_where_it_says(
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
    with pytest.raises(LostRecordsError, match="goes on at offset 70, and Kafka has 0 to 10"):
        starts(kafka, topic, offsets({first: 70, second: 0}, strategy.NONE))
    committed = KafkaOffsetsInitializer.committed_offsets
    with pytest.raises(MissingOffsetsError, match=f"{topic}-0, {topic}-1"):
        starts(kafka, topic, committed())
    assert starts(kafka, topic, committed(strategy.LATEST)) == [10, 0]
    commit(kafka, f"g-{topic}", topic, {0: 6})
    assert starts(kafka, topic, committed(strategy.EARLIEST)) == [6, 0]


def commit(kafka: KafkaBroker, group: str, topic: str, offsets: dict[int, int]) -> None:
    client = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    wanted = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    client.commit(offsets=wanted, asynchronous=False)
    client.close()


def committed(kafka: KafkaBroker, group: str, topic: str, count: int) -> list[int]:
    client = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    answers = client.committed([TopicPartition(topic, n) for n in range(count)], timeout=10)
    client.close()
    return [answer.offset for answer in answers]


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
        opened.enumerator.completed(positions)
        opened.until(lambda: committed(kafka, f"g-{topic}", topic, 2) == [5, 5])
        # The last one is still committed by close.
        opened.enumerator.completed(opened.enumerator.positions())
    assert committed(kafka, f"g-{topic}", topic, 2) == [10, 10]


def test_a_source_told_so_commits_nothing(kafka: KafkaBroker) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, {0: 10, 1: 10})
    quiet = builder(kafka, topic).set_group_id(f"g-{topic}")
    quiet.set_property("commit.offsets.on.checkpoint", "false")
    with Opened(quiet.build()) as opened:
        opened.enumerator.plan(10)
        opened.enumerator.completed(opened.enumerator.positions())
    assert committed(kafka, f"g-{topic}", topic, 2) == [-1001, -1001]


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


def test_new_partitions_are_noticed_and_read_from_their_beginning(kafka: KafkaBroker) -> None:
    topic = new_topic(kafka, 1)
    source = builder(kafka, topic).set_starting_offsets(LATEST)
    source.set_property("partition.discovery.interval.ms", "100")
    produce(kafka, topic, {0: 5})
    with Opened(source.build()) as opened:
        add_partition(kafka, topic, 2)
        written = produce(kafka, topic, {1: 7})
        assert opened.read(opened.next_plan()) == written
        assert opened.enumerator.positions() == {f"{topic}-0": 5, f"{topic}-1": 7}


def add_partition(kafka: KafkaBroker, topic: str, count: int) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    client.create_partitions([NewPartitions(topic, count)])[topic].result(10)
    while len(client.list_topics(topic, timeout=10).topics[topic].partitions) < count:
        time.sleep(0.05)


def test_partitions_that_came_while_no_job_ran_are_read_from_their_beginning(
    kafka: KafkaBroker,
) -> None:
    prefix = f"late-{uuid.uuid4().hex[:8]}"
    source = builder(kafka).set_topic_pattern(f"{prefix}.*").set_starting_offsets(LATEST).build()
    with Opened(source) as opened:
        positions, memory = opened.enumerator.positions(), opened.enumerator.memory()
    assert positions == {}
    topic = kafka.create_topic(f"{prefix}-a", 1)
    written = produce(kafka, topic, {0: 4})
    with Opened(source, positions, memory) as opened:
        assert opened.all_there_is() == written


def test_topics_no_longer_wanted_are_left_alone(
    kafka: KafkaBroker, filled: tuple[str, Records], caplog: pytest.LogCaptureFixture
) -> None:
    topic, _ = filled
    with Opened(builder(kafka, topic).build(), {"gone-0": 7, f"{topic}-0": 300}) as opened:
        assert opened.enumerator.positions() == {
            f"{topic}-0": 300,
            f"{topic}-1": 0,
            f"{topic}-2": 0,
        }
    assert "gone-0 is no longer read; it was at offset 7" in caplog.text


def delete_before(kafka: KafkaBroker, topic: str, offset: int) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    place = TopicPartition(topic, 0, offset)
    next(iter(client.delete_records([place]).values())).result(10)


def test_records_no_longer_retained_are_refused_at_the_start_and_while_running(
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


def test_a_job_told_so_goes_on_behind_lost_records(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(kafka, 1)
    written = produce(kafka, topic, {0: 30})
    delete_before(kafka, topic, 20)
    source = builder(kafka, topic).set_property("penstock.kafka.on-lost-records", "skip").build()
    with Opened(source, {f"{topic}-0": 5}) as opened:
        assert opened.all_there_is() == {f"{topic}-0": written[f"{topic}-0"][20:]}
    assert "15 offsets are lost: the job goes on at offset 20 instead of 5" in caplog.text


def test_what_was_read_may_be_deleted(kafka: KafkaBroker) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, {0: 30})
    source = (
        builder(kafka, topic)
        .set_bounded(KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 10}))
        .build()
    )
    with Opened(source) as opened:
        opened.all_there_is()
        positions, memory = opened.enumerator.positions(), opened.enumerator.memory()
    delete_before(kafka, topic, 20)
    with Opened(source, positions, memory) as opened:
        assert opened.enumerator.finished()


def test_a_position_beyond_the_end_is_refused(
    kafka: KafkaBroker, filled: tuple[str, Records], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enumerating, "_SETTLE_SECONDS", 0.3)
    topic, _ = filled
    with pytest.raises(LostRecordsError, match="was made anew or lost its end"):
        Opened(builder(kafka, topic).build(), {f"{topic}-0": 301})


def test_missing_topics_are_named(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumerating, "_MISSING_SECONDS", 0.0)
    with pytest.raises(MissingTopicError, match=f"{kafka.bootstrap} has no topic 'nowhere'"):
        Opened(builder(kafka, "nowhere").build())


def delete_topic(kafka: KafkaBroker, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    client.delete_topics([topic])[topic].result(10)


def test_a_deleted_topic_that_was_named_is_named_as_missing_and_not_waited_for(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_GONE_SECONDS", 0.3)
    kept, other, only = (new_topic(kafka, 1) for _ in range(3))
    for topics in ((kept, other), (only,)):
        with Opened(builder(kafka, *topics).build()) as opened:
            delete_topic(kafka, topics[-1])
            with pytest.raises(MissingTopicError, match=f"no partition 0 of topic '{topics[-1]}'"):
                opened.next_plan()


def test_a_deleted_topic_of_a_pattern_does_not_hold_up_the_others_and_is_left_alone_then(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watching, "_GONE_SECONDS", 3.0)
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


def test_a_restored_source_leaves_a_topic_alone_that_was_deleted_meanwhile(
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


def test_a_broker_that_does_not_answer_is_named_after_a_while() -> None:
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
        opened.until(lambda: "waiting for Kafka" in caplog.text)
        assert opened.enumerator.plan(10) == []
        opened.enumerator.completed(opened.enumerator.positions())
        kafka.start()
        more = produce(kafka, topic, {0: 5}, first=10)
        found[f"{topic}-0"] += opened.read(opened.next_plan())[f"{topic}-0"]
        opened.until(lambda: committed(kafka, f"g-{topic}", topic, 1) == [10])
    assert found[f"{topic}-0"] == written[f"{topic}-0"] + more[f"{topic}-0"]
    assert caplog.text.count("waiting for Kafka") == 1
    assert "Kafka is back" in caplog.text


def test_a_silent_broker_is_waited_for_and_does_not_hold_up_the_end(
    kafka: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(kafka, 1)
    source = builder(kafka, topic).set_group_id(f"g-{topic}")
    source.set_property("default.api.timeout.ms", "2000")
    with Opened(source.build()) as opened:
        # Longer than its session: it comes back with another epoch.
        kafka.pause()
        opened.until(lambda: "waiting for Kafka" in caplog.text)
        kafka.resume()
        written = produce(kafka, topic, {0: 5})
        assert opened.read(opened.next_plan()) == written
        kafka.pause()
        opened.enumerator.completed(opened.enumerator.positions())
        started = time.monotonic()
    assert time.monotonic() - started < 20
    kafka.resume()


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


def test_rows_hold_keys_times_headers_and_places(kafka: KafkaBroker) -> None:
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
