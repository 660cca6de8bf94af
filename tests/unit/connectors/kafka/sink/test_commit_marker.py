"""The commit marker of a Kafka sink, and two committers that interfere with each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.kafka.sink.commit_marker import CommitMarker, group_into_transactions
from penstock.connectors.kafka.sink.committable import (
    KafkaCommittable,
    StagedRecords,
    TransactionalIdentity,
)
from penstock.errors import IncompleteKafkaCheckpointError

ACCOUNT = TransactionalIdentity("id", "group", "topic")


def part_of(
    attempt: int, checkpoint: int, part: int = 0, parts: int = 1, size: int = 1
) -> KafkaCommittable:
    return KafkaCommittable(
        ACCOUNT, attempt, checkpoint, part, parts, "", [StagedRecords("", size, 1)]
    )


def checkpoint_of(
    attempt: int, checkpoint: int, parts: int, size: int = 1
) -> list[KafkaCommittable]:
    return [part_of(attempt, checkpoint, part, parts, size) for part in range(parts)]


CHECKPOINTS = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 9), st.integers(1, 4)),
    unique_by=lambda cut: cut[:2],
    min_size=1,
    max_size=6,
)


def everything(checkpoints: Sequence[tuple[int, int, int]]) -> list[KafkaCommittable]:
    return [part for one in sorted(checkpoints) for part in checkpoint_of(*one)]


def after(parts: Sequence[KafkaCommittable], marker: CommitMarker | None = None) -> CommitMarker:
    marker = marker or CommitMarker(0)
    for part in parts:
        marker = marker.advanced_past(part)
    return marker


@given(CHECKPOINTS, st.data())
def test_a_marker_covers_exactly_what_was_committed(
    checkpoints: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    parts = everything(checkpoints)
    done = data.draw(st.integers(0, len(parts)))
    marker = after(parts[:done])
    assert [marker.covers(part) for part in parts] == [n < done for n in range(len(parts))]
    assert CommitMarker.parse(marker.text) == marker


@given(CHECKPOINTS, st.integers(1, 9))
def test_transactions_contain_each_pending_part_once_and_in_order(
    checkpoints: list[tuple[int, int, int]], largest: int
) -> None:
    parts = everything(checkpoints)
    transactions = group_into_transactions([*reversed(parts), *parts], CommitMarker(0), largest)
    assert [part for transaction in transactions for part in transaction] == parts
    for transaction in transactions:
        assert len(transaction) <= largest


def test_what_a_marker_covers_is_in_no_transaction() -> None:
    parts = everything([(1, 5, 2), (1, 6, 3), (2, 7, 1)])
    assert group_into_transactions(parts, after(parts[:3]), 100) == [parts[3:]]
    assert group_into_transactions(parts, after(parts), 100) == []


def test_a_checkpoint_with_missing_parts_is_rejected() -> None:
    parts = checkpoint_of(1, 7, 3)
    with pytest.raises(
        IncompleteKafkaCheckpointError, match="1 of 3 parts of checkpoint 7 are missing"
    ):
        group_into_transactions([parts[0], parts[2]], CommitMarker(1), 100)
    # The first was published before, in a transaction of its own.
    assert group_into_transactions(parts[1:], after(parts[:1]), 100) == [parts[1:]]


def test_what_an_attempt_left_in_a_savepoint_is_not_covered_by_its_successors() -> None:
    # Attempt 1 took savepoint 20 and died; attempt 2 began at checkpoint 19 and went on to 25.
    marker = after([part_of(1, 19), part_of(2, 25)])
    assert marker.covers(part_of(1, 19))
    assert not marker.covers(part_of(1, 20))
    marker = marker.advanced_past(part_of(1, 20))
    assert marker.covers(part_of(1, 20))
    assert marker.covers(part_of(2, 25))
    assert not marker.covers(part_of(2, 26))


def test_nothing_is_known_about_attempts_before_the_first() -> None:
    marker = CommitMarker(3)
    assert marker.covers(part_of(2, 7)) is None
    assert marker.covers(part_of(3, 0)) is False
    assert marker.advanced_past(part_of(2, 7)).covers(part_of(2, 7)) is True
    assert marker.advanced_past(part_of(2, 7)).covers(part_of(1, 1)) is None


def test_a_marker_never_exceeds_the_brokers_metadata_limit() -> None:
    parts = [part_of(attempt, 10**9 + attempt, 0, 2) for attempt in range(1000, 1300)]
    marker = after(parts)
    assert len(marker.text) < 4096
    assert marker.covers(parts[-1]) is True
    assert marker.covers(parts[-100]) is True
    # It was committed, but its entry was dropped: the lost-marker policy decides.
    assert marker.covers(parts[0]) is None
    assert CommitMarker.parse(marker.text) == marker


def test_recent_commits_are_known_however_old_their_attempts_are() -> None:
    marker = after([part_of(attempt, 1) for attempt in range(1000, 1100)], CommitMarker(7))
    # A savepoint of long ago is restored, which two attempts of then had prepared for.
    old = [*checkpoint_of(7, 5, 2), *checkpoint_of(9, 6, 2)]
    for part in old:
        marker = marker.advanced_past(part)
        assert marker.covers(part)
    assert all(marker.covers(part) for part in old)
    assert marker.covers(part_of(7, 6)) is False
    assert len(marker.progress) == 100
    # An attempt whose entry may have been dropped is never taken for uncommitted.
    assert marker.covers(part_of(1000, 1)) is None
    assert marker.covers(part_of(8, 1)) is None
    assert marker.covers(part_of(1099, 1)) is True
    assert marker.offset == 10990000000001


def test_attempt_and_checkpoint_are_readable_in_offset_and_text() -> None:
    marker = after([part_of(7, 300), part_of(12, 345, 1, 3)], CommitMarker(1))
    assert marker.offset == 120000000345
    assert marker.text == "from=1 7:300 12:345/2"


@pytest.mark.parametrize("text", [None, "", "something else", "from=1 7:", "from=x"])
def test_text_that_is_not_a_marker_is_not_parsed(text: str | None) -> None:
    assert CommitMarker.parse(text) is None


class ProducerFencedError(Exception):
    """A newer producer has the transactional id."""


@dataclass
class ModelBroker:
    """The rules of Kafka's transactions that the sink relies on, and no others."""

    epoch: int = 0
    marker: CommitMarker | None = None
    log: list[KafkaCommittable] = field(default_factory=list)
    _open: list[KafkaCommittable] = field(default_factory=list)
    _offset: CommitMarker | None = None

    def init(self) -> int:
        self.epoch += 1
        self._open, self._offset = [], None
        return self.epoch

    def produce(self, epoch: int, parts: Sequence[KafkaCommittable]) -> None:
        self._check(epoch)
        self._open = [*self._open, *parts]

    def send_offset(self, epoch: int, marker: CommitMarker) -> None:
        self._check(epoch)
        self._offset = marker

    def commit(self, epoch: int) -> None:
        self._check(epoch)
        self.log += self._open
        self.marker = self._offset
        self._open, self._offset = [], None

    def _check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise ProducerFencedError


Steps = Generator[None, None, None]
Committer = Callable[[ModelBroker, Sequence[KafkaCommittable]], Steps]


def take_over_then_read(broker: ModelBroker, parts: Sequence[KafkaCommittable]) -> Steps:
    """Do what the sink does, with a stop before every step."""
    yield
    epoch = broker.init()
    yield
    yield from publish(broker, epoch, broker.marker, parts)


def read_then_take_over(broker: ModelBroker, parts: Sequence[KafkaCommittable]) -> Steps:
    yield
    marker = broker.marker
    yield
    yield from publish(broker, broker.init(), marker, parts)


def publish(
    broker: ModelBroker, epoch: int, marker: CommitMarker | None, parts: Sequence[KafkaCommittable]
) -> Steps:
    known = marker or CommitMarker(0)
    for transaction in group_into_transactions(parts, known, 2):
        known = after(transaction, known)
        yield
        broker.produce(epoch, transaction)
        yield
        broker.send_offset(epoch, known)
        yield
        broker.commit(epoch)


def schedules(first: int, second: int) -> Iterator[list[int]]:
    """All interleavings of two committers with that many steps each."""
    for places in itertools.combinations(range(first + second), first):
        yield [0 if step in places else 1 for step in range(first + second)]


ZOMBIES = checkpoint_of(1, 1, 2)
SUCCESSORS = [*ZOMBIES, *checkpoint_of(2, 2, 2)]


def outcome_of(schedule: list[int], committer: Committer) -> ModelBroker:
    broker = ModelBroker()
    pending = [ZOMBIES, SUCCESSORS]
    running = [committer(broker, parts) for parts in pending]
    for who in schedule:
        try:
            next(running[who])
        except StopIteration:
            running[who] = iter_nothing()
        except ProducerFencedError:
            # The zombie ends at the journal; the successor's job restarts and asks again.
            running[who] = iter_nothing() if who == 0 else committer(broker, pending[who])
    # The zombie's remaining steps run last, and once more before the end.
    while True:
        try:
            for _ in running[1]:
                pass
            break
        except ProducerFencedError:
            running[1] = committer(broker, SUCCESSORS)
    try:
        for _ in running[0]:
            pass
    except ProducerFencedError:
        pass
    return broker


def iter_nothing() -> Steps:
    yield from ()


def test_zombie_and_successor_commit_once_in_every_interleaving() -> None:
    for schedule in schedules(6, 9):
        broker = outcome_of(schedule, take_over_then_read)
        assert broker.log == SUCCESSORS, schedule
        assert broker.marker == after(SUCCESSORS)


def test_reading_the_marker_before_fencing_would_commit_twice() -> None:
    logs = [outcome_of(schedule, read_then_take_over).log for schedule in schedules(6, 9)]
    assert any(len(log) > len(SUCCESSORS) for log in logs)


def test_a_commit_whose_response_is_lost_is_found_by_the_next_producer() -> None:
    for died_after in range(12):
        broker = ModelBroker()
        dying = take_over_then_read(broker, SUCCESSORS)
        for _ in range(died_after):
            next(dying, None)
        for _ in range(2):
            list(take_over_then_read(broker, SUCCESSORS))
        assert broker.log == SUCCESSORS
