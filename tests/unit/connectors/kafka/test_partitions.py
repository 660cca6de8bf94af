import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.kafka.partitions import KafkaTopicPartition, Subscription
from penstock.connectors.kafka.source.split_assignment import split_owner
from penstock.errors import InvalidJobError

topics = st.from_regex(r"[a-zA-Z0-9._-]{1,12}", fullmatch=True)


@given(topics, st.integers(0, 100))
def test_a_split_identifies_one_partition_whatever_the_topic_name(topic: str, number: int) -> None:
    partition = KafkaTopicPartition(topic, number)
    assert KafkaTopicPartition.of_split(partition.split) == partition


@pytest.mark.parametrize(("topic", "partition"), [("", 0), ("t", -1), (None, 0), ("t", "0")])
def test_invalid_partitions_are_rejected(topic: str, partition: int) -> None:
    with pytest.raises(InvalidJobError):
        KafkaTopicPartition(topic, partition)


def test_partitions_are_values() -> None:
    partition = KafkaTopicPartition("orders", 3)
    assert cloudpickle.loads(cloudpickle.dumps(partition)) == partition
    assert len({partition, KafkaTopicPartition("orders", 3), KafkaTopicPartition("orders", 4)}) == 2
    text: object = "orders-3"
    assert partition != text


@given(topics, st.integers(1, 8))
def test_partitions_are_assigned_to_subtasks_round_robin(topic: str, parallelism: int) -> None:
    subtasks = [split_owner(KafkaTopicPartition(topic, n), parallelism) for n in range(parallelism)]
    assert sorted(subtasks) == list(range(parallelism))
    assert split_owner(KafkaTopicPartition(topic, parallelism), parallelism) == subtasks[0]


def test_the_first_subtask_of_a_topic_matches_flinks_hash() -> None:
    # "orders".hashCode() == -1008770331; (-1008770331 * 31 & 0x7FFFFFFF) % 4 == 3
    assert split_owner(KafkaTopicPartition("orders", 0), 4) == 3
    assert split_owner(KafkaTopicPartition("orders", 1), 4) == 0


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


def test_a_pattern_matches_internal_topics_only_if_it_contains_their_prefix() -> None:
    there = {"orders": 1, "_orders": 1, "__consumer_offsets": 1}

    def found(pattern: str) -> list[str]:
        return sorted(p.topic for p in Subscription(pattern=pattern).found_in(there))

    assert found(".*") == ["_orders", "orders"]
    assert found("__consumer_.*|orders") == ["__consumer_offsets", "orders"]


def test_a_subscription_reports_missing_topics() -> None:
    assert Subscription(topics=("orders", "nope")).missing_in(THERE) == ["topic 'nope'"]
    assert Subscription(pattern="nope").missing_in(THERE) == []
    one = frozenset({KafkaTopicPartition("users", 7)})
    assert Subscription(partitions=one).missing_in(THERE) == ["partition 7 of topic 'users'"]


def test_a_single_topic_needs_no_topic_column() -> None:
    assert Subscription(topics=("orders",)).only_topic() == "orders"
    assert Subscription(topics=("orders", "users")).only_topic() is None
    assert Subscription(pattern="orders").only_topic() is None
