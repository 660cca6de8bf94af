"""What acknowledging sources promise, against a model of a broker."""

from __future__ import annotations

import itertools
import logging
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.storage_url import StorageUrl
from penstock.connectors.acknowledging import receiver_loop as receiving
from penstock.connectors.acknowledging.acknowledgement_mark import (
    AcknowledgementMark,
    SnapshotPoint,
)
from penstock.connectors.acknowledging.receiver_loop import ReceiverLoop
from penstock.connectors.contracts.source import EnumeratorContext, SourceEnumerator
from penstock.errors import (
    AcknowledgedRecordsError,
    FencedError,
    InvalidJobError,
    LostReceivedRecordsError,
    UndecodableMessageError,
)
from penstock.storage.local_storage import LocalStorage
from tests.unit.connectors.acknowledging.model_broker import ModelBroker, ModelReceiver, ModelSource

FENCED = FencedError("job", "a1", "a2")


@pytest.fixture(autouse=True, scope="module")
def no_threads() -> Iterator[None]:
    """Let the tests run the steps of the receiver thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReceiverLoop, "start", lambda self: None)
        yield


@dataclass(frozen=True)
class Snapshot:
    counted: Counter[str]
    positions: dict[str, int]
    memory: bytes


class Job:
    """A job that counts its records, and forgets what no checkpoint holds when it is killed."""

    def __init__(
        self, source: ModelSource, work_dir: Path, store: StorageUrl | None = None
    ) -> None:
        self.source = source
        self.store = store
        self._work_dir = work_dir
        self._attempts = itertools.count(1)
        self.counted: Counter[str] = Counter()
        self.enumerator: SourceEnumerator | None = None
        self.is_replaced = False

    def _check_owner(self) -> None:
        if self.is_replaced:
            raise FENCED

    def begin(self, snapshot: Snapshot | None = None) -> None:
        attempt = f"a{next(self._attempts)}"
        context = EnumeratorContext(
            2,
            self._work_dir,
            lambda: 0.0,
            lambda: None,
            "job",
            attempt,
            checkpointed=True,
            check_owner=self._check_owner,
            store=self.store,
        )
        self.counted = Counter()
        self.enumerator = self.source.enumerator(context)
        if snapshot is not None:
            self.counted += snapshot.counted
            self.enumerator.restore_state(snapshot.memory)
        self.enumerator.start({} if snapshot is None else snapshot.positions)

    @property
    def running(self) -> SourceEnumerator:
        assert self.enumerator is not None
        return self.enumerator

    def receive(self) -> None:
        self.running._loop.step(0.0)  # type: ignore[attr-defined]

    def run(self, max_records: int = 1_000) -> None:
        for ranges in self.running.plan(max_records):
            for part in ranges:
                for chunk in self.source.read_lists(part):
                    self.counted.update(chunk)

    def cut(self) -> Snapshot:
        enumerator = self.running
        return Snapshot(self.counted.copy(), enumerator.positions(), enumerator.snapshot_state())

    def complete(self, snapshot: Snapshot) -> None:
        self.running.notify_checkpoint_complete(snapshot.positions)

    def checkpoint(self) -> Snapshot:
        snapshot = self.cut()
        self.complete(snapshot)
        return snapshot

    def drain(self) -> None:
        for _ in range(3):
            self.source.broker.lose_patience(range(5))
            self.receive()
            self.run()


def job_on(broker: ModelBroker, work_dir: Path) -> Job:
    job = Job(ModelSource(broker), work_dir)
    job.begin()
    return job


def each_once(broker: ModelBroker) -> Counter[str]:
    return Counter(f"m{number}" for number in range(broker.published))


class Mishaps:
    """A job and its broker, to which anything may happen."""

    def __init__(self, rng: random.Random, broker: ModelBroker, work_dir: Path) -> None:
        self._rng = rng
        self._broker = broker
        self._job = Job(ModelSource(broker), work_dir)
        self._job.source.max_unacknowledged = rng.choice([3, 10, 100])
        self._job.begin()
        self._cuts: list[Snapshot] = []
        self._completed: Snapshot | None = None

    def publish(self) -> None:
        self._broker.publish(self._rng.randint(1, 6))

    def receive(self) -> None:
        with self._losing_acks():
            self._job.receive()

    def run(self) -> None:
        self._job.run(self._rng.randint(1, 8))

    def cut(self) -> None:
        self._cuts.append(self._job.cut())

    def complete(self) -> None:
        if self._cuts:
            self._completed = self._cuts.pop(0)
            if self._rng.random() < 0.7:
                self._job.complete(self._completed)

    def lose_patience(self) -> None:
        self._broker.lose_patience([self._rng.randrange(10) for _ in range(3)])

    def send(self) -> None:
        self._broker.send(self._rng.randint(1, 5))

    def broker_dies(self) -> None:
        if self._broker.numbered:
            self._broker.forget_acks(self._rng.randint(1, 5))

    def end_attempt(self) -> None:
        if self._rng.random() < 0.3:
            with self._losing_acks():
                self._job.running.close()
        self._cuts.clear()
        self._job.begin(self._completed)

    def happen(self, steps: int) -> None:
        often = [self.publish, self.receive, self.receive, self.run, self.cut, self.complete]
        seldom = [self.lose_patience, self.send, self.broker_dies, self.end_attempt]
        for _ in range(steps):
            self._rng.choice([*often, *often, *seldom])()
            assert max(self._job.counted.values(), default=0) <= 1

    def come_to_rest(self) -> Counter[str]:
        # Fewer may be in flight than there are messages: progress needs checkpoints.
        for _ in range(2 * self._broker.published):
            self._broker.lose_patience(())
            self._job.receive()
            self._job.run()
            self._job.checkpoint()
            if len(self._broker.acknowledged) == self._broker.published:
                break
        return self._job.counted

    @contextmanager
    def _losing_acks(self) -> Iterator[None]:
        self._broker.loses_acks = self._rng.random() < 0.2
        yield
        self._broker.loses_acks = False


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "named"])
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_each_message_counts_once_whatever_crashes_in_whatever_order(
    numbered: bool, seed: int
) -> None:
    broker = ModelBroker(numbered=numbered)
    with tempfile.TemporaryDirectory() as work_dir:
        mishaps = Mishaps(random.Random(seed), broker, Path(work_dir))
        mishaps.happen(120)
        assert mishaps.come_to_rest() == each_once(broker)
    assert sorted(broker.acknowledged) == list(range(broker.published))


@pytest.fixture(params=[True, False], ids=["numbered", "named"])
def broker(request: pytest.FixtureRequest) -> ModelBroker:
    made = ModelBroker(numbered=request.param)
    made.publish(10)
    return made


def test_nothing_is_acknowledged_before_a_checkpoint_is_completed(
    broker: ModelBroker, tmp_path: Path
) -> None:
    job = job_on(broker, tmp_path)
    job.receive()
    job.run(4)
    cut = job.cut()
    job.run(3)
    job.receive()
    assert broker.acknowledged == []
    job.complete(cut)
    job.receive()
    assert broker.acknowledged == [0, 1, 2, 3]


def test_a_crash_between_completion_and_acknowledgement_duplicates_nothing(
    broker: ModelBroker, tmp_path: Path
) -> None:
    job = job_on(broker, tmp_path)
    job.receive()
    job.run()
    snapshot = job.checkpoint()
    job.begin(snapshot)  # killed: nothing was acknowledged
    job.drain()
    assert job.counted == each_once(broker)
    assert sorted(broker.acknowledged) == list(range(10))


def test_records_after_the_last_checkpoint_are_redelivered(
    broker: ModelBroker, tmp_path: Path
) -> None:
    job = job_on(broker, tmp_path)
    job.receive()
    job.run(6)
    snapshot = job.checkpoint()
    job.run()
    job.begin(snapshot)
    job.drain()
    assert job.counted == each_once(broker)


def test_a_redelivery_in_flight_is_dropped_and_its_latest_handle_acknowledged(
    broker: ModelBroker, tmp_path: Path
) -> None:
    job = job_on(broker, tmp_path)
    job.receive()
    broker.lose_patience([])
    job.receive()
    job.run()
    assert job.counted == each_once(broker)
    job.checkpoint()
    job.receive()
    assert broker.last_handles == [(n, n + 11) for n in range(10)]


def test_the_snapshot_stays_small_however_much_was_read(tmp_path: Path) -> None:
    broker = ModelBroker(numbered=True)
    job = job_on(broker, tmp_path)
    sizes = []
    for _ in range(30):
        broker.publish(200)
        job.receive()
        job.run()
        job.checkpoint()
        job.receive()
        sizes.append(len(job.running.snapshot_state()))
    assert job.counted == each_once(broker)
    assert max(sizes) < 200


def test_a_job_ends_with_everything_acknowledged(broker: ModelBroker, tmp_path: Path) -> None:
    job = job_on(broker, tmp_path)
    job.receive()
    job.run()
    job.checkpoint()
    job.running.close()
    assert sorted(broker.acknowledged) == list(range(10))


def test_unfinished_deliveries_are_rejected_when_an_attempt_ends(
    broker: ModelBroker, tmp_path: Path
) -> None:
    job = job_on(broker, tmp_path)
    job.receive()
    job.run(4)
    job.checkpoint()
    job.run(3)
    job.running.close()
    assert sorted(broker.waiting) == [4, 5, 6, 7, 8, 9]


def test_a_snapshot_older_than_what_was_acknowledged_is_rejected(
    broker: ModelBroker, tmp_path: Path
) -> None:
    job = job_on(broker, tmp_path)
    job.receive()
    job.run(3)
    savepoint = job.cut()
    job.run(3)
    newest = job.checkpoint()
    job.receive()
    with pytest.raises(AcknowledgedRecordsError) as refused:
        job.begin(savepoint)
    assert (refused.value.restored, refused.value.acknowledged) == (
        "record 3 of attempt a1",
        "record 6 of attempt a1",
    )
    job.begin(newest)
    job.source.fail_on_data_loss = False
    job.begin(savepoint)
    job.drain()
    assert job.counted == each_once(broker) - Counter(["m3", "m4", "m5"])


def test_an_older_snapshot_is_accepted_while_nothing_after_it_was_acknowledged(
    broker: ModelBroker, tmp_path: Path
) -> None:
    job = job_on(broker, tmp_path)
    job.receive()
    job.run(3)
    older = job.checkpoint()
    job.run(3)
    job.cut()  # completed, and damaged before the source was notified
    job.begin(older)
    job.drain()
    assert job.counted == each_once(broker)


def test_an_older_snapshot_is_rejected_across_ten_attempts(
    broker: ModelBroker, tmp_path: Path
) -> None:
    job = job_on(broker, tmp_path)
    job.receive()
    job.run(1)
    snapshot = job.checkpoint()
    for _ in range(9):
        job.running.close()
        job.begin(snapshot)
    job.receive()
    job.run(1)
    ninth = snapshot
    job.checkpoint()  # by a10
    with pytest.raises(AcknowledgedRecordsError, match="of attempt a10"):
        job.begin(ninth)


def test_another_job_may_start_from_the_snapshot(broker: ModelBroker, tmp_path: Path) -> None:
    job = job_on(broker, tmp_path / "one")
    job.receive()
    job.run(4)
    savepoint = job.cut()
    other = Job(job.source, tmp_path / "other")
    other.begin(savepoint)
    other.drain()
    assert other.counted == each_once(broker)


def test_a_snapshot_older_than_what_another_job_acknowledged_is_rejected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = ModelBroker(numbered=True)
    broker.publish(10)
    job = job_on(broker, tmp_path / "one")
    job.receive()
    job.run(4)
    savepoint = job.cut()
    job.run(2)
    job.checkpoint()
    job.receive()
    job.running.close()
    other = Job(job.source, tmp_path / "other")
    with pytest.raises(AcknowledgedRecordsError, match=r"record 4 of attempt a1.* message 18 was"):
        other.begin(savepoint)
    assert broker.connections == 0
    job.source.fail_on_data_loss = False
    other.begin(savepoint)
    assert "Message 12 was acknowledged by another job" in caplog.text
    other.drain()
    assert other.counted == each_once(broker) - Counter(["m4", "m5"])


def test_a_job_that_started_after_acknowledged_messages_is_restored(tmp_path: Path) -> None:
    broker = ModelBroker(numbered=True)
    broker.publish(10)
    job = job_on(broker, tmp_path / "one")
    job.receive()
    job.run(4)
    job.checkpoint()
    job.receive()
    job.running.close()
    other = job_on(broker, tmp_path / "other")
    other.receive()
    other.run(2)
    newest = other.checkpoint()
    other.begin(newest)
    other.drain()
    assert other.counted + job.counted == each_once(broker)


def test_a_suspended_driver_keeps_what_its_successor_received(
    broker: ModelBroker, tmp_path: Path
) -> None:
    job = job_on(broker, tmp_path)
    job.receive()
    job.run(3)
    older = job.checkpoint()
    job.receive()
    job.begin(older)
    slept = job.running  # as if it had slept since it was made
    job.begin(older)
    broker.lose_patience(range(10))
    job.receive()
    slept.start(older.positions)
    job.run()
    assert job.counted == each_once(broker)


def test_a_driver_that_was_replaced_neither_receives_nor_acknowledges(
    broker: ModelBroker, tmp_path: Path
) -> None:
    job = job_on(broker, tmp_path)
    job.receive()
    job.run(3)
    job.checkpoint()
    before = len(broker.acknowledged)
    job.is_replaced = True
    with pytest.raises(FencedError):
        job.receive()
    job.running.close()
    assert len(broker.acknowledged) == before


def test_a_mark_is_never_moved_back(tmp_path: Path) -> None:
    mark = AcknowledgementMark(tmp_path / "new", "a10")
    for cut in (
        SnapshotPoint("job", "a9", 7),
        SnapshotPoint("job", "a10", 3),
        SnapshotPoint("job", "a10", 5),
    ):
        mark.write(cut)
        assert mark.read() == cut
    for earlier in (SnapshotPoint("job", "a10", 4), SnapshotPoint("job", "a9", 8)):
        mark.write(earlier)
        assert mark.read() == SnapshotPoint("job", "a10", 5)
    mark.write(SnapshotPoint("other", "a1", 1))
    assert mark.read() == SnapshotPoint("other", "a1", 1)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["acknowledged-a10.json"]


def test_a_driver_suspended_while_it_writes_the_mark_does_not_move_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspended, successor = (AcknowledgementMark(tmp_path, attempt) for attempt in ("a1", "a2"))
    newest = SnapshotPoint("job", "a2", 9)
    replace = LocalStorage.replace

    def wake_up(storage: LocalStorage, path: str, data: bytes) -> None:
        monkeypatch.undo()
        successor.write(newest)
        replace(storage, path, data)

    monkeypatch.setattr(LocalStorage, "replace", wake_up)
    suspended.write(SnapshotPoint("job", "a1", 5))
    assert AcknowledgementMark(tmp_path, "a3").read() == newest


def test_the_mark_of_a_version_with_one_file_for_all_attempts_counts(tmp_path: Path) -> None:
    point = SnapshotPoint("job", "a1", 5)
    (tmp_path / "acknowledged.json").write_bytes(msgspec.json.encode(point))
    mark = AcknowledgementMark(tmp_path, "a2")
    assert mark.read() == point
    mark.write(SnapshotPoint("job", "a1", 4))
    assert mark.read() == point


def test_receiving_stops_at_the_limit_of_unacknowledged_records(
    broker: ModelBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(receiving, "_STALL_WARNING_SECONDS", 0.0)
    job = Job(ModelSource(broker), tmp_path)
    job.source.max_unacknowledged = 4
    job.begin()
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            job.receive()
    assert len(broker.waiting) == 6
    assert caplog.text.count("4 records wait for a checkpoint") == 1
    job.run()
    job.checkpoint()
    job.receive()
    assert len(broker.waiting) == 2


def test_long_checkpoints_extend_the_ack_timeout(broker: ModelBroker, tmp_path: Path) -> None:
    job = Job(ModelSource(broker), tmp_path)
    job.source.extend_after = 0.01
    job.begin()
    job.receive()
    for _ in range(2):
        time.sleep(0.011)
        job.receive()
    assert sorted(number for number, _ in broker.extended) == list(range(10))
    job.run()
    job.checkpoint()
    job.receive()
    broker.extended.clear()
    time.sleep(0.011)
    job.receive()
    assert broker.extended == []


def test_an_acknowledging_source_requires_checkpoints(broker: ModelBroker, tmp_path: Path) -> None:
    context = EnumeratorContext(1, tmp_path, lambda: 0.0, lambda: None, checkpointed=False)
    with pytest.raises(InvalidJobError, match="enable_checkpointing"):
        ModelSource(broker).enumerator(context)


def test_an_error_of_the_receiver_fails_the_job_after_the_last_record(
    broker: ModelBroker, tmp_path: Path
) -> None:
    job = job_on(broker, tmp_path)
    job.receive()
    receiving_ = job.running._loop  # type: ignore[attr-defined]
    receiving_.error = OSError("gone")
    job.run()
    assert job.counted == each_once(broker)
    with pytest.raises(OSError, match="gone"):
        job.run()


def test_notes_of_a_receiver_are_restored(
    broker: ModelBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelReceiver, "notes", lambda self: {"created": "today"})
    job = job_on(broker, tmp_path)
    job.begin(job.cut())
    assert [context.notes for context in job.source.contexts] == [{}, {"created": "today"}]


def test_a_message_without_a_record_is_dropped(
    broker: ModelBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ModelSource, "deserialize", lambda self, payload: None if payload == b"m3" else "x"
    )
    job = job_on(broker, tmp_path)
    job.receive()
    job.run()
    assert job.counted == {"x": 9}


def test_an_undecodable_message_is_shown(broker: ModelBroker, tmp_path: Path) -> None:
    class Picky(ModelSource):
        def deserialize(self, payload: bytes) -> str:
            return str(1 / (payload != b"m3"))

    job = Job(Picky(broker), tmp_path)
    job.begin()
    job.receive()
    with pytest.raises(UndecodableMessageError, match=r"message b'm3': ZeroDivisionError"):
        job.run()


def test_lost_received_records_are_reported(broker: ModelBroker, tmp_path: Path) -> None:
    job = job_on(broker, tmp_path)
    job.receive()
    shutil.rmtree(tmp_path / "job" / "received")
    with pytest.raises(LostReceivedRecordsError, match="record 0 is missing"):
        job.run()


def test_logs_of_older_attempts_are_removed(broker: ModelBroker, tmp_path: Path) -> None:
    job = job_on(broker, tmp_path)
    job.receive()
    job.begin()
    assert [path.name for path in (tmp_path / "job" / "received").iterdir()] == ["a2"]
    job.running.close()
    assert list((tmp_path / "job" / "received").iterdir()) == []
