import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.kafka.partitions import KafkaTopicPartition, Subscription, subtask_of
from penstock.errors import InvalidJobError

topics = st.from_regex(r"[a-zA-Z0-9._-]{1,12}", fullmatch=True)


@given(topics, st.integers(0, 100))
def test_a_split_names_one_partition_whatever_the_topic_is_called(topic: str, number: int) -> None:
    partition = KafkaTopicPartition(topic, number)
    assert KafkaTopicPartition.of_split(partition.split) == partition


@pytest.mark.parametrize(("topic", "partition"), [("", 0), ("t", -1), (None, 0), ("t", "0")])
def test_what_is_no_partition_is_refused(topic: str, partition: int) -> None:
    with pytest.raises(InvalidJobError):
        KafkaTopicPartition(topic, partition)


def test_partitions_are_values() -> None:
    partition = KafkaTopicPartition("orders", 3)
    assert cloudpickle.loads(cloudpickle.dumps(partition)) == partition
    assert len({partition, KafkaTopicPartition("orders", 3), KafkaTopicPartition("orders", 4)}) == 2
    assert partition != "orders-3"


@given(topics, st.integers(1, 8))
def test_the_partitions_of_a_topic_go_round_the_subtasks(topic: str, parallelism: int) -> None:
    subtasks = [subtask_of(KafkaTopicPartition(topic, n), parallelism) for n in range(parallelism)]
    assert sorted(subtasks) == list(range(parallelism))
    assert subtask_of(KafkaTopicPartition(topic, parallelism), parallelism) == subtasks[0]


def test_a_topic_begins_at_the_subtask_java_says() -> None:
    # "orders".hashCode() == -1008770331; (-1008770331 * 31 & 0x7FFFFFFF) % 4 == 3
    assert subtask_of(KafkaTopicPartition("orders", 0), 4) == 3
    assert subtask_of(KafkaTopicPartition("orders", 1), 4) == 0


THERE = {"orders": 2, "orders-eu": 1, "users": 3}


def names(subscription: Subscription) -> list[str]:
    return [partition.split for partition in sorted(subscription.found_in(THERE))]


def test_a_subscription_finds_its_partitions() -> None:
    assert names(Subscription(topics=("orders", "users"))) == [
        "orders-0",
        "orders-1",
        "users-0",
        "users-1",
        "users-2",
    ]
    assert names(Subscription(pattern="orders.*")) == ["orders-0", "orders-1", "orders-eu-0"]
    assert names(Subscription(pattern="order")) == []
    one = frozenset({KafkaTopicPartition("users", 1)})
    assert names(Subscription(partitions=one)) == ["users-1"]


def test_a_pattern_takes_kafkas_own_topics_only_if_it_spells_them() -> None:
    there = {"orders": 1, "_orders": 1, "__consumer_offsets": 1}

    def found(pattern: str) -> list[str]:
        return sorted(p.topic for p in Subscription(pattern=pattern).found_in(there))

    assert found(".*") == ["_orders", "orders"]
    assert found("__consumer_.*|orders") == ["__consumer_offsets", "orders"]


def test_a_subscription_names_what_is_missing() -> None:
    assert Subscription(topics=("orders", "nope")).missing_in(THERE) == ["topic 'nope'"]
    assert Subscription(pattern="nope").missing_in(THERE) == []
    one = frozenset({KafkaTopicPartition("users", 7)})
    assert Subscription(partitions=one).missing_in(THERE) == ["partition 7 of topic 'users'"]


def test_one_topic_needs_no_column_to_tell_it() -> None:
    assert Subscription(topics=("orders",)).only_topic() == "orders"
    assert Subscription(topics=("orders", "users")).only_topic() is None
    assert Subscription(pattern="orders").only_topic() is None
