"""How far a Kafka sink has come, and two committers that get in each other's way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.kafka.marker import Marker, transactions_of
from penstock.connectors.kafka.staged_part import Account, Piece, StagedPart
from penstock.errors import IncompleteKafkaCutError

ACCOUNT = Account("id", "group", "topic")


def part_of(
    attempt: int, checkpoint: int, part: int = 0, parts: int = 1, size: int = 1
) -> StagedPart:
    return StagedPart(ACCOUNT, attempt, checkpoint, part, parts, "", [Piece("", size, 1)])


def cut_of(attempt: int, checkpoint: int, parts: int, size: int = 1) -> list[StagedPart]:
    return [part_of(attempt, checkpoint, part, parts, size) for part in range(parts)]


CUTS = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 9), st.integers(1, 4)),
    unique_by=lambda cut: cut[:2],
    min_size=1,
    max_size=6,
)


def everything(cuts: Sequence[tuple[int, int, int]]) -> list[StagedPart]:
    return [part for cut in sorted(cuts) for part in cut_of(*cut)]


def after(parts: Sequence[StagedPart], marker: Marker = Marker(0)) -> Marker:  # noqa: B008
    for part in parts:
        marker = marker.behind(part)
    return marker


@given(CUTS, st.data())
def test_a_marker_covers_what_was_published_and_no_more(
    cuts: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    parts = everything(cuts)
    done = data.draw(st.integers(0, len(parts)))
    marker = after(parts[:done])
    assert [marker.covers(part) for part in parts] == [n < done for n in range(len(parts))]
    assert Marker.read(marker.text) == marker


@given(CUTS, st.integers(1, 9))
def test_transactions_hold_each_owed_part_once_and_in_order(
    cuts: list[tuple[int, int, int]], largest: int
) -> None:
    parts = everything(cuts)
    told = transactions_of([*reversed(parts), *parts], Marker(0), largest)
    assert [part for transaction in told for part in transaction] == parts
    for transaction in told:
        assert len(transaction) <= largest


def test_what_a_marker_covers_is_in_no_transaction() -> None:
    parts = everything([(1, 5, 2), (1, 6, 3), (2, 7, 1)])
    assert transactions_of(parts, after(parts[:3]), 100) == [parts[3:]]
    assert transactions_of(parts, after(parts), 100) == []


def test_a_cut_without_some_of_its_parts_is_refused() -> None:
    parts = cut_of(1, 7, 3)
    with pytest.raises(IncompleteKafkaCutError, match="1 of 3 parts of checkpoint 7 are missing"):
        transactions_of([parts[0], parts[2]], Marker(1), 100)
    # The first was published before, in a transaction of its own.
    assert transactions_of(parts[1:], after(parts[:1]), 100) == [parts[1:]]


def test_what_an_attempt_left_in_a_savepoint_is_not_covered_by_its_successors() -> None:
    # Attempt 1 took savepoint 20 and died; attempt 2 began at checkpoint 19 and went on to 25.
    marker = after([part_of(1, 19), part_of(2, 25)])
    assert marker.covers(part_of(1, 19))
    assert not marker.covers(part_of(1, 20))
    marker = marker.behind(part_of(1, 20))
    assert marker.covers(part_of(1, 20))
    assert marker.covers(part_of(2, 25))
    assert not marker.covers(part_of(2, 26))


def test_nothing_is_known_of_attempts_before_the_first() -> None:
    marker = Marker(3)
    assert marker.covers(part_of(2, 7)) is None
    assert marker.covers(part_of(3, 0)) is False
    assert marker.behind(part_of(2, 7)).covers(part_of(2, 7)) is True
    assert marker.behind(part_of(2, 7)).covers(part_of(1, 1)) is None


def test_a_marker_never_grows_above_what_a_broker_keeps() -> None:
    parts = [part_of(attempt, 10**9 + attempt, 0, 2) for attempt in range(1000, 1300)]
    marker = after(parts)
    assert len(marker.text) < 4096
    assert marker.covers(parts[-1]) is True
    assert marker.covers(parts[-100]) is True
    # It was published, but that is forgotten: the user is asked.
    assert marker.covers(parts[0]) is None
    assert Marker.read(marker.text) == marker


def test_what_was_published_last_is_known_however_old_its_attempts_are() -> None:
    marker = after([part_of(attempt, 1) for attempt in range(1000, 1100)], Marker(7))
    # A savepoint of long ago is restored, which two attempts of then had prepared for.
    old = [*cut_of(7, 5, 2), *cut_of(9, 6, 2)]
    for part in old:
        marker = marker.behind(part)
        assert marker.covers(part)
    assert all(marker.covers(part) for part in old)
    assert marker.covers(part_of(7, 6)) is False
    assert len(marker.published) == 100
    # Nobody is taken for unpublished who may just have been forgotten.
    assert marker.covers(part_of(1000, 1)) is None
    assert marker.covers(part_of(8, 1)) is None
    assert marker.covers(part_of(1099, 1)) is True
    assert marker.offset == 10990000000001


def test_attempt_and_checkpoint_can_be_read_in_offset_and_text() -> None:
    marker = after([part_of(7, 300), part_of(12, 345, 1, 3)], Marker(1))
    assert marker.offset == 120000000345
    assert marker.text == "from=1 7:300 12:345/2"


@pytest.mark.parametrize("text", [None, "", "something else", "from=1 7:", "from=x"])
def test_what_is_no_marker_is_not_read_as_one(text: str | None) -> None:
    assert Marker.read(text) is None


class FencedOffError(Exception):
    """Somebody took over."""


@dataclass
class Broker:
    """The rules of Kafka's transactions that the sink relies on, and no others."""

    epoch: int = 0
    marker: Marker | None = None
    log: list[StagedPart] = field(default_factory=list)
    _open: list[StagedPart] = field(default_factory=list)
    _offset: Marker | None = None

    def init(self) -> int:
        self.epoch += 1
        self._open, self._offset = [], None
        return self.epoch

    def produce(self, epoch: int, parts: Sequence[StagedPart]) -> None:
        self._check(epoch)
        self._open = [*self._open, *parts]

    def send_offset(self, epoch: int, marker: Marker) -> None:
        self._check(epoch)
        self._offset = marker

    def commit(self, epoch: int) -> None:
        self._check(epoch)
        self.log += self._open
        self.marker = self._offset
        self._open, self._offset = [], None

    def _check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise FencedOffError


Steps = Generator[None, None, None]
Committer = Callable[[Broker, Sequence[StagedPart]], Steps]


def take_over_then_read(broker: Broker, parts: Sequence[StagedPart]) -> Steps:
    """Do what the sink does, with a stop before every step."""
    yield
    epoch = broker.init()
    yield
    yield from publish(broker, epoch, broker.marker, parts)


def read_then_take_over(broker: Broker, parts: Sequence[StagedPart]) -> Steps:
    yield
    marker = broker.marker
    yield
    yield from publish(broker, broker.init(), marker, parts)


def publish(
    broker: Broker, epoch: int, marker: Marker | None, parts: Sequence[StagedPart]
) -> Steps:
    known = marker or Marker(0)
    for transaction in transactions_of(parts, known, 2):
        known = after(transaction, known)
        yield
        broker.produce(epoch, transaction)
        yield
        broker.send_offset(epoch, known)
        yield
        broker.commit(epoch)


def schedules(first: int, second: int) -> Iterator[list[int]]:
    """All orders in which two committers can take that many steps each."""
    for places in itertools.combinations(range(first + second), first):
        yield [0 if step in places else 1 for step in range(first + second)]


ZOMBIES = cut_of(1, 1, 2)
SUCCESSORS = [*ZOMBIES, *cut_of(2, 2, 2)]


def outcome_of(schedule: list[int], committer: Committer) -> Broker:
    broker = Broker()
    owed = [ZOMBIES, SUCCESSORS]
    running = [committer(broker, parts) for parts in owed]
    for who in schedule:
        try:
            next(running[who])
        except StopIteration:
            running[who] = iter_nothing()
        except FencedOffError:
            # The zombie ends at the journal; the successor's job restarts and asks again.
            running[who] = iter_nothing() if who == 0 else committer(broker, owed[who])
    # Whatever the zombie has left to do comes last, and once more before the end.
    while True:
        try:
            for _ in running[1]:
                pass
            break
        except FencedOffError:
            running[1] = committer(broker, SUCCESSORS)
    try:
        for _ in running[0]:
            pass
    except FencedOffError:
        pass
    return broker


def iter_nothing() -> Steps:
    yield from ()


def test_zombie_and_successor_publish_once_in_every_interleaving() -> None:
    for schedule in schedules(6, 9):
        broker = outcome_of(schedule, take_over_then_read)
        assert broker.log == SUCCESSORS, schedule
        assert broker.marker == after(SUCCESSORS)


def test_reading_the_marker_before_taking_over_would_publish_twice() -> None:
    logs = [outcome_of(schedule, read_then_take_over).log for schedule in schedules(6, 9)]
    assert any(len(log) > len(SUCCESSORS) for log in logs)


def test_a_commit_whose_answer_is_lost_is_found_by_the_next_producer() -> None:
    for died_after in range(12):
        broker = Broker()
        dying = take_over_then_read(broker, SUCCESSORS)
        for _ in range(died_after):
            next(dying, None)
        for _ in range(2):
            list(take_over_then_read(broker, SUCCESSORS))
        assert broker.log == SUCCESSORS
