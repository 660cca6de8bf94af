import gc
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import msgspec
import pytest

from penstock.connectors import collect_sink
from penstock.connectors.collect_sink import CollectSink, Delivery
from penstock.connectors.contracts.committer import CommitterContext
from penstock.connectors.contracts.committing import commit_all
from penstock.connectors.contracts.sink import PublisherContext, Sink, SinkPublisher, WriterContext
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.errors import CommitFailedError, LostReceiverError


def publisher_of(sink: Sink, work_dir: Path, *, checkpointed: bool = False) -> SinkPublisher:
    return sink.publisher(
        PublisherContext(1, "collect", work_dir, "job", "a1", checkpointed, staging_dir=work_dir)
    )


def staged(sink: Sink, directory: Path, *values: Any) -> bytes:
    writer = sink.writer(WriterContext(0, 1, directory, "name"))
    for value in values:
        writer.write(value)
    return writer.stage()


def commit(sink: Sink, work_dir: Path, committables: list[bytes]) -> None:
    committer = sink.committer(CommitterContext("job", "a1", "collect", work_dir))
    assert committer is not None
    commit_all(committer, committables, retries=0, pause=lambda _: None, step="collect")


def test_the_receiver_is_not_pickled_with_the_sink(tmp_path: Path) -> None:
    received: list[Any] = []
    sink = CollectSink(received.append)
    copy: CollectSink = cloudpickle.loads(cloudpickle.dumps(sink))
    publisher_of(copy, tmp_path).publish([staged(copy, tmp_path, 1, None, "x"), b""])
    assert received == [[1, None, "x"]]


def test_collecting_for_a_program_that_ended_is_an_error(tmp_path: Path) -> None:
    pickled = cloudpickle.dumps(CollectSink(print))
    gc.collect()
    with pytest.raises(LostReceiverError, match="'collect'"):
        publisher_of(cloudpickle.loads(pickled), tmp_path)
    with pytest.raises(LostReceiverError, match="'collect'"):
        commit(cloudpickle.loads(pickled), tmp_path, [])


def test_values_of_classes_without_an_importable_name_are_collected(tmp_path: Path) -> None:
    module = ModuleType("a_main_program")
    sys.modules["a_main_program"] = module
    try:
        exec("class Point:\n    def __init__(self, x):\n        self.x = x", vars(module))
        point = module.Point(3)
    finally:
        del sys.modules["a_main_program"]
    received: list[Any] = []
    sink = CollectSink(received.extend)
    publisher_of(sink, tmp_path).publish([staged(sink, tmp_path, 1, point, lambda: 7, 2)])
    one, point, function, two = received
    assert (one, point.x, function(), two) == (1, 3, 7, 2)


def test_a_discarding_sink_stages_nothing(tmp_path: Path) -> None:
    sink = DiscardingSink()
    entry = staged(sink, tmp_path, 1, 2)
    assert entry == b""
    publisher_of(sink, tmp_path).publish([entry])


def test_rows_of_one_checkpoint_are_ordered_by_micro_batch_and_subtask(tmp_path: Path) -> None:
    received: list[Any] = []
    sink = CollectSink(received.append)
    publisher = publisher_of(sink, tmp_path, checkpointed=True)
    publisher.publish([staged(sink, tmp_path, 1, 2), b"", staged(sink, tmp_path, 3)])
    publisher.publish([b"", staged(sink, tmp_path, 4), b""])
    commit(sink, tmp_path, publisher.at_barrier(1, flush=False)().committables)
    assert received == [[1, 2], [3], [4]]


def test_many_rows_stay_out_of_the_checkpoint(tmp_path: Path) -> None:
    received: list[Any] = []
    sink = CollectSink(received.extend)
    publisher = publisher_of(sink, tmp_path, checkpointed=True)
    publisher.publish([staged(sink, tmp_path, "x" * 1_000_000)])
    (committable,) = publisher.at_barrier(1, flush=False)().committables
    assert len(committable) < 100
    (file,) = tmp_path.glob("*.delivery")
    file.write_bytes(b"")
    with pytest.raises(CommitFailedError, match="LostStagedFileError"):
        commit(sink, tmp_path, [committable])
    assert received == []


def test_rows_are_not_delivered_again_if_the_record_of_them_could_not_be_written(
    tmp_path: Path,
) -> None:
    received: list[Any] = []
    sink = CollectSink(received.extend)
    work_dir = tmp_path / "work"
    publisher = publisher_of(sink, work_dir, checkpointed=True)
    publisher.publish([staged(sink, tmp_path, 1)])
    committables = publisher.at_barrier(1, flush=False)().committables
    work_dir.write_text("in the way")
    with pytest.raises(CommitFailedError, match="not known whether"):
        commit(sink, work_dir, committables)
    work_dir.unlink()
    commit(sink, work_dir, committables)
    assert received == [1]


def test_an_incomplete_line_in_the_record_harms_no_other_line(tmp_path: Path) -> None:
    received: list[Any] = []
    sink = CollectSink(received.extend)
    publisher = publisher_of(sink, tmp_path, checkpointed=True)
    (tmp_path / "a1.delivered").write_text("0123456789abc")
    publisher.publish([staged(sink, tmp_path, 1)])
    committables = publisher.at_barrier(1, flush=False)().committables
    commit(sink, tmp_path, committables)
    commit(CollectSink(received.extend), tmp_path, committables)
    assert received == [1]


def test_records_of_deliveries_are_read_once_and_forgotten_with_their_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect_sink, "_MAX_FORGOTTEN", 10)
    reads: list[str] = []
    ids_in = collect_sink.Deliveries._ids_in

    def counted(deliveries: collect_sink.Deliveries, record: str) -> set[str]:
        reads.append(record)
        return ids_in(deliveries, record)

    monkeypatch.setattr(collect_sink.Deliveries, "_ids_in", counted)
    received: list[Any] = []
    sink = CollectSink(received.extend)
    (tmp_path / "a1.delivered").write_text("older\n")
    publisher = publisher_of(sink, tmp_path, checkpointed=True)
    committer = sink.committer(CommitterContext("job", "a1", "collect", tmp_path))
    assert committer is not None
    savepoint: list[bytes] = []
    last: list[bytes] = []
    for checkpoint in range(200):
        publisher.publish([staged(sink, tmp_path, checkpoint)])
        committables = publisher.at_barrier(checkpoint, flush=False)().committables
        commit_all(committer, committables, retries=0, pause=lambda _: None, step="collect")
        savepoint = savepoint or committables
        committer.discard(last, [*savepoint, *committables])
        last = committables
    assert len(reads) == 1
    assert len((tmp_path / "a1.delivered").read_text().split()) < 20
    assert sink._receiver is not None
    assert len(sink._receiver.delivered) == 2
    for again in (savepoint, last):
        commit(sink, tmp_path, again)
        commit(CollectSink(received.extend), tmp_path, again)
    assert received == list(range(200))


def test_a_delivery_of_the_same_size_but_other_content_is_not_handed_over(tmp_path: Path) -> None:
    received: list[Any] = []
    sink = CollectSink(received.extend)
    publisher = publisher_of(sink, tmp_path, checkpointed=True)
    publisher.publish([staged(sink, tmp_path, "x" * 1_000_000)])
    (committable,) = publisher.at_barrier(1, flush=False)().committables
    (file,) = tmp_path.glob("*.delivery")
    file.write_bytes(file.read_bytes().replace(b"xx", b"yx", 1))
    with pytest.raises(CommitFailedError, match="CorruptStagedRecordsError"):
        commit(sink, tmp_path, [committable])
    assert received == []


@pytest.mark.parametrize("name", ["../secret", "/etc/secret", "a/../../secret"])
def test_a_forged_delivery_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.delivery").write_bytes(b"x")
    forged = msgspec.msgpack.encode(Delivery(name, None, 1))
    with pytest.raises(CommitFailedError, match="UnsafeNameError"):
        commit(CollectSink(print), tmp_path / "work", [forged])
    assert (tmp_path / "secret.delivery").exists()
