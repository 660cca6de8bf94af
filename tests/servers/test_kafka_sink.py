"""The Kafka sink and a real broker: each record once for readers of what is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import admin as admins
from confluent_kafka.admin import AdminClient

from penstock.common.serialization import SerializationSchema
from penstock.connectors.contracts.committer import CommitOutcome, CommitRequest
from penstock.connectors.contracts.sink import DeliveryGuarantee
from penstock.connectors.kafka.client import KafkaProperties
from penstock.connectors.kafka.sink.commit_marker import CommitMarker
from penstock.connectors.kafka.sink.committable import TransactionalIdentity, decode_committable
from penstock.connectors.kafka.sink.committer import KafkaCommitter
from penstock.connectors.kafka.sink.kafka_sink import KafkaSinkBuilder
from penstock.connectors.kafka.sink.serialization import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    Message,
)
from penstock.connectors.kafka.sink.transactions import TransactionalProducer
from penstock.errors import (
    CommitFailedError,
    KafkaDeliveryError,
    KafkaFencedError,
    KafkaSinkRefusedError,
    KafkaUnreachableError,
    LostKafkaMarkerError,
)
from penstock.testing.servers.kafka_broker import KafkaBroker
from tests.contracts.sink_harness import Attempt, Case
from tests.servers.kafka_sink_case import (
    Texts,
    committed_messages,
    committed_records,
    exactly_once_case,
    new_topic,
    sink_builder,
)

pytestmark = pytest.mark.kafka

# The client's modules do not say what they export.
_of_topic = partial(vars(admins)["ConfigResource"], vars(admins)["ResourceType"].TOPIC)
_setting = partial(
    vars(admins)["ConfigEntry"], incremental_operation=vars(admins)["AlterConfigOpType"].SET
)

EXACTLY_ONCE = DeliveryGuarantee.EXACTLY_ONCE


class BeforeDash(SerializationSchema):
    def serialize(self, element: Any) -> bytes:
        return str(element).partition("-")[0].encode()


def records(topic: str) -> KafkaRecordSerializationSchemaBuilder:
    builder = KafkaRecordSerializationSchema.builder().set_topic(topic)
    return builder.set_value_serialization_schema(Texts())


def keyed(topic: str) -> KafkaRecordSerializationSchema:
    return records(topic).set_key_serialization_schema(BeforeDash()).build()


def case_of(builder: KafkaSinkBuilder) -> Case:
    return Case(builder.build(), list)


def shown(kafka: KafkaBroker, topic: str) -> list[str]:
    return [value.decode() for _, value in committed_records(kafka.bootstrap, topic)]


def producer_of(
    kafka: KafkaBroker, identity: TransactionalIdentity, **more: Any
) -> TransactionalProducer:
    properties = KafkaProperties({"bootstrap.servers": kafka.bootstrap, **more})
    return TransactionalProducer(properties, identity)


def marker_text(kafka: KafkaBroker, group: str, topic: str) -> str | None:
    """What the broker keeps as the marker of a group; None if nothing."""
    looking = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    try:
        found = looking.committed([TopicPartition(topic, 0)], 10)[0]
    finally:
        looking.close()
    return found.metadata if found.offset >= 0 else None


def commit(committer: Any, committables: list[bytes]) -> list[CommitRequest]:
    requests = [CommitRequest(data) for data in committables]
    committer.commit(requests)
    return requests


def broken_off(
    committables: list[bytes], then: Callable[[], None]
) -> Iterator[tuple[str, list[Message]]]:
    """Give the records of committables to a transaction; do something when half are out."""
    blocks = [block for data in committables for block in decode_committable(data).blocks()]
    yield from blocks[: len(blocks) // 2]
    then()
    yield from blocks[len(blocks) // 2 :]


def _marker_after(committables: list[bytes]) -> CommitMarker:
    marker = CommitMarker(1)
    for data in committables:
        marker = marker.advanced_past(decode_committable(data))
    return marker


def half_published(
    kafka: KafkaBroker, directory: Path, then: Callable[[Case, list[bytes], str], None]
) -> tuple[Case, list[bytes], Exception | None]:
    """Begin a transaction with what two subtasks staged, and do something in the middle."""
    topic = new_topic(kafka)
    case = exactly_once_case(kafka, directory, topic)
    attempt = Attempt(case, directory)
    attempt.publish(["a"], ["b"])
    committables = attempt.snapshot().committables
    part = decode_committable(committables[-1])
    producer = producer_of(kafka, part.identity)
    producer.open()
    try:
        producer.publish(
            broken_off(committables, lambda: then(case, committables, topic)),
            _marker_after(committables),
        )
    except (KafkaFencedError, KafkaUnreachableError) as error:
        return case, committables, error
    finally:
        producer.close()
    return case, committables, None


def test_records_of_an_open_transaction_are_invisible(kafka: KafkaBroker, tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def look(case: Case, committables: list[bytes], topic: str) -> None:
        while not committed_records(kafka.bootstrap, topic, "read_uncommitted"):
            pass
        seen.append(case.shown())

    case, _, error = half_published(kafka, tmp_path, look)
    assert error is None
    assert seen == [[]]
    assert case.shown() == ["a", "b"]


def test_a_zombie_is_fenced_by_its_successor(kafka: KafkaBroker, tmp_path: Path) -> None:
    def publish_again(case: Case, committables: list[bytes], topic: str) -> None:
        Attempt(case, tmp_path, "a2").commit(committables)

    case, committables, error = half_published(kafka, tmp_path, publish_again)
    assert isinstance(error, KafkaFencedError)
    assert case.shown() == ["a", "b"]
    assert Attempt(case, tmp_path, "a3").commit(committables).already_committed == 2
    assert case.shown() == ["a", "b"]


def test_a_fenced_committer_does_not_know_the_outcome(kafka: KafkaBroker, tmp_path: Path) -> None:
    case = exactly_once_case(kafka, tmp_path)
    zombie = Attempt(case, tmp_path)
    zombie.publish(["a"], [])
    committer = zombie.committer()
    commit(committer, zombie.snapshot(1).committables)
    zombie.publish(["b"], [])
    committables = zombie.snapshot(2).committables
    successor = Attempt(case, tmp_path, "a2")
    successor.commit(committables)
    (request,) = commit(committer, committables)
    assert request.outcome is CommitOutcome.UNKNOWN
    assert isinstance(request.error, KafkaFencedError)
    # A retry would find out; but the journal keeps a zombie from retrying.
    (request,) = commit(committer, committables)
    assert request.outcome is CommitOutcome.ALREADY_COMMITTED
    committer.close()
    assert case.shown() == ["a", "b"]


def test_the_publisher_of_an_attempt_does_not_fence_its_committer(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    case = exactly_once_case(kafka, tmp_path)
    dead = Attempt(case, tmp_path)
    dead.publish(["a"], [])
    restored = dead.snapshot(1).committables
    # Like the engine after a restore: commit, open the publisher, then continue to commit.
    attempt = Attempt(case, tmp_path, "a2")
    committer = attempt.committer()
    commit(committer, restored)
    attempt = Attempt(case, tmp_path, "a2")
    attempt.publish(["b"], [])
    (request,) = commit(committer, attempt.snapshot(2).committables)
    assert request.outcome is None
    committer.close()
    assert case.shown() == ["a", "b"]


def test_a_killed_broker_loses_and_duplicates_nothing(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic, other = new_topic(kafka), new_topic(kafka, 2)
    builder = sink_builder(kafka, topic, EXACTLY_ONCE)
    attempt = Attempt(case_of(builder), tmp_path)
    attempt.publish(["a"], ["x" * 100_000])
    committables = attempt.snapshot().committables
    part = decode_committable(committables[-1])
    at_least_once = sink_builder(kafka, other, DeliveryGuarantee.AT_LEAST_ONCE)
    writer = Attempt(case_of(at_least_once), tmp_path / "other").writer(0)
    texts = [str(number) for number in range(20_000)]
    for text in texts[:10_000]:
        writer.write(text)
    producer = producer_of(kafka, part.identity, **{"max.block.ms": 3000})
    producer.open()
    attempt._case = case_of(builder.set_property("max.block.ms", 2000))
    committer = attempt.committer()
    with pytest.raises(KafkaUnreachableError):
        producer.publish(broken_off(committables, kafka.kill), _marker_after(committables))
    outcomes = {request.outcome for request in commit(committer, committables)}
    assert outcomes == {CommitOutcome.RETRY_LATER}
    for text in texts[10_000:]:
        writer.write(text)
    kafka.start()
    while CommitOutcome.RETRY_LATER in outcomes:
        outcomes = {request.outcome for request in commit(committer, committables)}
    committer.close()
    assert outcomes == {None}
    assert shown(kafka, topic) == ["a", "x" * 100_000]
    writer.stage()
    assert set(shown(kafka, other)) == set(texts)


def test_a_commit_killed_between_two_transactions_continues_with_the_second(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = new_topic(kafka)
    case = exactly_once_case(kafka, tmp_path, topic)
    attempt = Attempt(case, tmp_path, parallelism=3)
    attempt.publish(["a"], ["b"], ["c"])
    committables = attempt.snapshot().committables
    parts = [decode_committable(data) for data in committables]
    producer = producer_of(kafka, parts[0].identity)
    producer.open()
    producer.publish(parts[0].blocks(), CommitMarker(1).advanced_past(parts[0]))
    producer.close()
    report = Attempt(case, tmp_path, "a2").commit(committables)
    assert (report.already_committed, report.committed) == (1, 2)
    assert case.shown() == ["a", "b", "c"]


def test_a_checkpoint_too_large_for_one_transaction_is_published_in_several(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = new_topic(kafka)
    case = exactly_once_case(kafka, tmp_path, topic)
    attempt = Attempt(case, tmp_path, parallelism=3)
    attempt.publish(["a"], ["b"], ["c"])
    committables = attempt.snapshot().committables
    committer = attempt.committer()
    assert isinstance(committer, KafkaCommitter)
    committer._max_transaction_bytes = 1
    requests = commit(committer, committables)
    assert [request.outcome for request in requests] == [None] * 3
    committer.close()
    # Every transaction ends with a marker of its own in the log.
    offsets = [m.offset() for m in committed_messages(kafka.bootstrap, topic)]
    assert offsets == [0, 2, 4]
    assert attempt.commit(committables).already_committed == 3


def test_a_lost_marker_is_never_guessed(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    builder = sink_builder(kafka, topic, EXACTLY_ONCE)
    attempt = Attempt(case_of(builder), tmp_path)
    attempt.publish(["a", "b"], ["c"])
    committables = attempt.snapshot(7).committables
    group = decode_committable(committables[0]).identity.group

    def forget() -> None:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_consumer_groups([group])[group].result()

    forget()
    with pytest.raises(CommitFailedError, match="3 records of checkpoint 7 are in Kafka") as caught:
        attempt.commit(committables)
    assert caught.value.kind == "impossible"
    assert isinstance(caught.value.__cause__, LostKafkaMarkerError)
    assert shown(kafka, topic) == []

    choose = "penstock.kafka.on-lost-marker"
    publishing = case_of(builder.set_property(choose, "publish")).sink
    skipping = case_of(builder.set_property(choose, "skip")).sink
    attempt._case = Case(skipping, list)
    assert attempt.commit(committables).already_committed == 2
    assert shown(kafka, topic) == []
    forget()
    attempt._case = Case(publishing, list)
    assert attempt.commit(committables).committed == 2
    assert attempt.commit(committables).already_committed == 2
    assert shown(kafka, topic) == ["a", "b", "c"]


def test_a_job_without_output_keeps_its_marker_alive(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    attempt = Attempt(case_of(sink_builder(kafka, topic, EXACTLY_ONCE)), tmp_path)
    attempt.publish(["a"], [])
    first = attempt.snapshot(1).committables
    committer = attempt.committer()
    assert isinstance(committer, KafkaCommitter)
    now = 0.0
    committer._clock = lambda: now
    commit(committer, first)
    committer.notify_checkpoint_complete()
    group = decode_committable(first[0]).identity.group
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_consumer_groups([group])[group].result()
    committer.notify_checkpoint_complete()  # a moment later: there is no need
    assert marker_text(kafka, group, topic) is None
    now = 24 * 60 * 60.0
    committer.notify_checkpoint_complete()
    # A new producer has to read the marker.
    committer._producer.close()
    attempt.publish(["b"], [])
    again = commit(committer, [*first, *attempt.snapshot(2).committables])
    assert [r.outcome for r in again] == [CommitOutcome.ALREADY_COMMITTED, None]
    committer.close()
    assert shown(kafka, topic) == ["a", "b"]


def test_a_savepoint_is_published_although_later_attempts_diverged(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    case = exactly_once_case(kafka, tmp_path)
    first = Attempt(case, tmp_path)
    first.publish(["a"], [])
    savepoint = first.snapshot(1).committables
    # It died, and its successor began before the savepoint.
    second = Attempt(case, tmp_path, "a2")
    second.publish(["b"], [])
    second.commit(second.snapshot(2).committables)
    third = Attempt(case, tmp_path, "a3")
    assert third.commit(savepoint).committed == 1
    assert third.commit(savepoint).already_committed == 1
    assert case.shown() == ["b", "a"]


def test_another_job_publishes_what_a_savepoint_holds_and_leaves_the_files_alone(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    case = exactly_once_case(kafka, tmp_path)
    original = Attempt(case, tmp_path)
    original.publish(["a" * 100_000], ["b"])
    saved = original.snapshot().committables
    staged = case.leftovers()
    assert staged
    other = Attempt(case, tmp_path, job="other")
    assert other.commit(saved).committed == 2
    assert other.commit(saved).already_committed == 2
    other.sweep([])
    assert case.leftovers() == staged
    assert original.commit(saved).already_committed == 2
    assert case.leftovers() == []
    assert case.shown() == ["a" * 100_000, "b"]


def test_another_job_of_the_same_name_starts_without_a_marker(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    case = exactly_once_case(kafka, tmp_path)
    for directory in (tmp_path / "one", tmp_path / "other"):
        attempt = Attempt(case, directory)
        attempt._job = "job"
        attempt.publish([directory.name], [])
        attempt.commit(attempt.snapshot(1).committables)
    assert case.shown() == ["one", "other"]


def test_a_transaction_timeout_above_the_brokers_limit_is_rejected(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    builder = sink_builder(kafka, new_topic(kafka), EXACTLY_ONCE)
    too_long = case_of(builder.set_property("transaction.timeout.ms", 900_001))
    with pytest.raises(KafkaSinkRefusedError, match="Transaction timeout is larger") as caught:
        Attempt(too_long, tmp_path)
    assert "transaction.max.timeout.ms" in str(caught.value)


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE])
def test_a_missing_topic_is_reported_before_the_first_record(
    kafka: KafkaBroker, tmp_path: Path, guarantee: DeliveryGuarantee
) -> None:
    with pytest.raises(KafkaSinkRefusedError, match=r"'no-such-topic': .*create it first"):
        Attempt(case_of(sink_builder(kafka, "no-such-topic", guarantee)), tmp_path)


def test_an_unreachable_broker_is_reported_by_address(tmp_path: Path, kafka: KafkaBroker) -> None:
    builder = sink_builder(kafka, "topic", EXACTLY_ONCE).set_property("max.block.ms", 300)
    nobody = case_of(builder.set_bootstrap_servers("127.0.0.1:9"))
    with pytest.raises(KafkaUnreachableError, match=r"127\.0\.0\.1:9"):
        Attempt(nobody, tmp_path)


def test_a_record_the_topic_rejects_stays_staged_until_it_is_accepted(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = new_topic(kafka, max_message_bytes=1000)
    case = exactly_once_case(kafka, tmp_path, topic)
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], ["x" * 90_000])
    committables = attempt.snapshot().committables
    with pytest.raises(CommitFailedError, match=r"raise max\.message\.bytes") as caught:
        attempt.commit(committables)
    assert caught.value.kind == "impossible"
    assert case.shown() == []
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    larger = _setting("max.message.bytes", "1000000")
    resource = _of_topic(topic, incremental_configs=[larger])
    admin.incremental_alter_configs([resource])[resource].result()
    Attempt(case, tmp_path, "a2").commit(committables)
    assert case.shown() == ["a", "x" * 90_000]


def test_an_at_least_once_sink_reports_the_rejected_record(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = new_topic(kafka, max_message_bytes=1000)
    builder = sink_builder(kafka, topic, DeliveryGuarantee.AT_LEAST_ONCE)
    attempt = Attempt(case_of(builder.set_record_serializer(keyed(topic))), tmp_path)
    writer = attempt.writer(0)
    writer.write("large-" + "x" * 90_000)
    with pytest.raises(KafkaDeliveryError, match=f"topic '{topic}' .* key b'large': MSG_SIZE_TOO"):
        writer.stage()
    writer.abort()


def test_a_hundred_thousand_records_arrive_once_and_in_order_by_key(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 4)
    builder = sink_builder(kafka, topic, EXACTLY_ONCE).set_record_serializer(keyed(topic))
    attempt = Attempt(case_of(builder), tmp_path)
    committer = attempt.committer()
    numbers = iter(range(100_000))
    for checkpoint in range(1, 6):
        for _ in range(2):
            batch = [next(numbers) for _ in range(10_000)]
            # A key belongs to one subtask, as after a key_by.
            attempt.publish(
                [f"{n % 10}-{n}" for n in batch if n % 2 == 0],
                [f"{n % 10}-{n}" for n in batch if n % 2 == 1],
            )
        requests = commit(committer, attempt.snapshot(checkpoint).committables)
        assert [request.outcome for request in requests] == [None, None]
    committer.close()
    by_key: dict[bytes, list[int]] = {}
    for key, value in committed_records(kafka.bootstrap, topic):
        assert key is not None
        by_key.setdefault(key, []).append(int(value.partition(b"-")[2]))
    assert by_key == {b"%d" % key: list(range(key, 100_000, 10)) for key in range(10)}


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE])
@pytest.mark.parametrize("extras", [False, True], ids=["plain", "with times"])
def test_a_full_queue_keeps_the_order(
    kafka: KafkaBroker, tmp_path: Path, guarantee: DeliveryGuarantee, *, extras: bool
) -> None:
    topic = new_topic(kafka)
    serializer = records(topic)
    if extras:
        serializer.set_timestamp(lambda text: 1_700_000_000_000)
    builder = sink_builder(kafka, topic, guarantee).set_record_serializer(serializer.build())
    narrow = case_of(builder.set_property("queue.buffering.max.messages", 300))
    attempt = Attempt(narrow, tmp_path)
    texts = [str(number) for number in range(5_000)]
    attempt.publish(texts, [])
    if guarantee is EXACTLY_ONCE:
        attempt.commit(attempt.snapshot().committables)
    assert shown(kafka, topic) == texts


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, DeliveryGuarantee.NONE])
def test_headers_timestamps_and_partitions_arrive(
    kafka: KafkaBroker, tmp_path: Path, guarantee: DeliveryGuarantee
) -> None:
    topic = new_topic(kafka, 3)
    serializer = (
        records(topic)
        .set_header_provider(lambda text: {"kind": b"test", "nothing": None})
        .set_timestamp(lambda text: 1_700_000_000_000 + int(text))
        .set_partitioner(lambda text: int(text) % 3)
        .build()
    )
    attempt = Attempt(
        case_of(sink_builder(kafka, topic, guarantee).set_record_serializer(serializer)), tmp_path
    )
    attempt.publish(["0", "1", "2", "5"], [])
    if guarantee is EXACTLY_ONCE:
        attempt.commit(attempt.snapshot().committables)
    messages = committed_messages(kafka.bootstrap, topic)
    assert [(m.partition(), m.value(), m.timestamp()[1] % 1000) for m in messages] == [
        (0, b"0", 0),
        (1, b"1", 1),
        (2, b"2", 2),
        (2, b"5", 5),
    ]
    assert all(m.headers() == [("kind", b"test"), ("nothing", None)] for m in messages)


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE])
@pytest.mark.parametrize("extra", ["headers", "partition", "timestamp"])
def test_headers_of_only_some_records_arrive_with_them(
    kafka: KafkaBroker, tmp_path: Path, guarantee: DeliveryGuarantee, extra: str
) -> None:
    topic = new_topic(kafka, 2)
    serializer = records(topic)
    cases: dict[str, tuple[Callable[[Any], Any], Any, Any, Callable[[Any], Any]]] = {
        "headers": (
            serializer.set_header_provider,
            {"kind": b"0"},
            {"kind": b"1"},
            lambda message: dict(message.headers() or ()),
        ),
        "partition": (serializer.set_partitioner, 0, 1, lambda message: message.partition()),
        "timestamp": (serializer.set_timestamp, 1000, 2000, lambda message: message.timestamp()[1]),
    }
    give, first, second, arrived = cases[extra]
    give(lambda text: {"b": first, "c": second}.get(text))
    builder = sink_builder(kafka, topic, guarantee).set_record_serializer(serializer.build())
    attempt = Attempt(case_of(builder), tmp_path)
    attempt.publish(["a", "b", "c", "d"], [])
    if guarantee is EXACTLY_ONCE:
        attempt.commit(attempt.snapshot().committables)
    came = {m.value(): arrived(m) for m in committed_messages(kafka.bootstrap, topic)}
    assert sorted(came) == [b"a", b"b", b"c", b"d"]
    assert (came[b"b"], came[b"c"]) == (first, second)


def test_topics_can_be_chosen_record_by_record(kafka: KafkaBroker, tmp_path: Path) -> None:
    even, odd, markers = (new_topic(kafka) for _ in range(3))
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(lambda text: odd if int(text) % 2 else even)
        .set_value_serialization_schema(Texts())
        .build()
    )
    builder = sink_builder(kafka, even, EXACTLY_ONCE).set_record_serializer(serializer)
    attempt = Attempt(case_of(builder.set_marker_topic(markers)), tmp_path)
    attempt.publish(["0", "1", "2"], ["3"])
    attempt.commit(attempt.snapshot().committables)
    assert (shown(kafka, even), shown(kafka, odd)) == (["0", "2"], ["1", "3"])
    assert shown(kafka, markers) == []


def test_keys_are_partitioned_like_javas_producer(kafka: KafkaBroker, tmp_path: Path) -> None:
    # Hashes from the tests of Kafka's own murmur2.
    hashes = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
    topic = new_topic(kafka, 7)
    serializer = records(topic).set_key_serialization_schema(Texts()).build()
    builder = sink_builder(kafka, topic, EXACTLY_ONCE).set_record_serializer(serializer)
    attempt = Attempt(case_of(builder), tmp_path)
    attempt.publish(list(hashes), [])
    attempt.commit(attempt.snapshot().committables)
    placed = {m.key().decode(): m.partition() for m in committed_messages(kafka.bootstrap, topic)}
    assert placed == {key: (number & 0x7FFFFFFF) % 7 for key, number in hashes.items()}
