"""Sources of a job in a real S3 server: what they must find again, and what a store cannot hold."""

from __future__ import annotations

import re
import shutil
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.common.serialization import Encoder
from penstock.common.storage_url import StorageUrl
from penstock.connectors.acknowledging.acknowledgement_mark import (
    AcknowledgementMark,
    SnapshotPoint,
)
from penstock.connectors.acknowledging.receiver_loop import ReceiverLoop
from penstock.connectors.files.sink import FileSink
from penstock.connectors.kafka.source.initial_offsets import InitialOffsets, InitialOffsetsFile
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import AcknowledgedRecordsError, MissingIngestionDirectoryError
from penstock.ids import AttemptId, OperatorUid
from penstock.job.input.read_progress import ReadProgress
from penstock.storage.storages import storage_at
from penstock.testing.servers.s3_server import S3Server
from tests.servers.faulty_s3 import Fault, FaultyS3
from tests.unit.connectors.acknowledging.model_broker import ModelBroker, ModelSource
from tests.unit.connectors.acknowledging.test_source import Job, each_once
from tests.unit.job.counting import (
    Program,
    bursts,
    counted,
    die,
    idle_after,
    launched,
    wait_for_records,
)
from tests.unit.support import eventually

pytestmark = pytest.mark.s3

BUCKET = "sources"


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyS3]:
    with FaultyS3(s3.port) as proxy:
        yield proxy


@pytest.fixture
def place(s3: S3Server, proxy: FaultyS3, tmp_path: Path) -> StorageUrl:
    s3.create_bucket(BUCKET)
    return s3.url(BUCKET, tmp_path.name, endpoint=proxy.endpoint)


@pytest.fixture
def in_s3(s3: S3Server, place: StorageUrl) -> dict[str, str]:
    """The settings of a job whose directory is there."""
    reach = {
        f"penstock.storage.{name}": value for name, value in s3.options(retry_timeout="3 s").items()
    }
    own = {"execution.checkpointing.dir": str(place), **reach}
    return {key.replace(".", "__").replace("-", "_"): value for key, value in own.items()}


# -- where an at-most-once job has read to ---------------------------------------------------------


def progress(
    place: StorageUrl, attempt: str, check_owner: Callable[[], None] = lambda: None
) -> ReadProgress:
    return ReadProgress(place, OperatorUid("in"), AttemptId(attempt), check_owner)


def test_how_far_an_at_most_once_job_has_read_is_found_by_a_new_driver(place: StorageUrl) -> None:
    assert progress(place, "a1").read() == {}
    first = progress(place, "a1")
    for position in range(1, 12):
        first.write({"in": position})
    assert progress(place, "a2").read() == {"in": 11}
    second = progress(place, "a2")
    second.write({"in": 20})
    # The first driver wakes up.
    first.write({"in": 12})
    assert progress(place, "a3").read() == {"in": 20}


def test_a_micro_batch_costs_one_request_and_old_marks_do_not_accumulate(
    place: StorageUrl, proxy: FaultyS3
) -> None:
    mark = progress(place, "a1")
    mark.write({"in": 0})
    proxy.counted()
    for position in range(1, 250):
        mark.write({"in": position})
    done = Counter(re.sub(" .*", "", one) for one in proxy.counted())
    assert done == {"PUT": 249, "POST": 2}
    assert len(storage_at(place).list("progress")) < 110
    later = progress(place, "a2")
    later.write({"in": 300})
    assert len(storage_at(place).list("progress")) == 1


def test_a_request_that_arrives_late_does_not_move_the_positions_back(
    place: StorageUrl, s3: S3Server
) -> None:
    mark = progress(place, "a1")
    mark.write({"in": 1})
    (path,) = (s3.buckets / BUCKET / place.path).rglob("*.json")
    late = path.read_bytes()
    mark.write({"in": 2})
    path.write_bytes(late)
    assert progress(place, "a2").read() == {"in": 2}


def test_a_job_that_reads_at_most_once_repeats_nothing_on_a_new_driver(
    in_s3: dict[str, str], tmp_path: Path
) -> None:
    settings = {**in_s3, "execution__checkpointing__mode": "AT_MOST_ONCE"}
    for records in (40, 80):
        job = Program(tmp_path, idle_after(records), settings=settings).launch()
        wait_for_records(job, 1)
        die(job)
    program = Program(tmp_path, bursts(120), settings=settings)
    program.run()
    lines = Counter(program.lines())
    assert lines
    assert max(lines.values()) == 1
    assert set(lines) <= set(counted(120))


# -- small files -----------------------------------------------------------------------------------


def test_the_first_offsets_of_a_kafka_source_are_final(place: StorageUrl, proxy: FaultyS3) -> None:
    began = InitialOffsets({"orders-0": 7}, {"orders-0": 9})
    proxy.once(Fault(loses_answer=True), "PUT")
    assert InitialOffsetsFile(place, "lineage", "latest").write(began) == began
    later = InitialOffsets({"orders-0": 8}, {})
    assert InitialOffsetsFile(place, "lineage", "latest").write(later) == began
    assert InitialOffsetsFile(place, "lineage", "latest").read() == began
    assert InitialOffsetsFile(place, "other lineage", "latest").read() is None


def test_what_was_acknowledged_is_found_by_a_new_driver(place: StorageUrl) -> None:
    zombie = AcknowledgementMark(place / "job", "a1")
    zombie.write(SnapshotPoint("job", "a1", 5))
    AcknowledgementMark(place / "job", "a2").write(SnapshotPoint("job", "a2", 9))
    zombie.write(SnapshotPoint("job", "a1", 7))
    assert AcknowledgementMark(place / "job", "a3").read() == SnapshotPoint("job", "a2", 9)


def test_a_new_driver_drops_what_was_seen_and_rejects_what_was_acknowledged_since(
    place: StorageUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReceiverLoop, "start", lambda self: None)
    broker = ModelBroker(numbered=True)
    broker.publish(10)
    job = Job(ModelSource(broker), tmp_path / "lost", place)
    job.begin()
    job.receive()
    job.run(3)
    savepoint = job.cut()
    job.run(3)
    newest = job.checkpoint()
    job.receive()
    shutil.rmtree(tmp_path / "lost")
    job._work_dir = tmp_path / "new"
    with pytest.raises(AcknowledgedRecordsError):
        job.begin(savepoint)
    job.begin(newest)
    job.drain()
    assert job.counted == each_once(broker)


# -- what a store cannot hold ----------------------------------------------------------------------


class Lines:
    """Sends lines to every client."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]

    def send(self, *lines: str) -> Callable[[], None]:
        """Send them to the next connection; return what closes that."""
        connections: list[socket.socket] = []

        def serve() -> None:
            connections.append(self._listening.accept()[0])
            connections[0].sendall("".join(f"{line}\n" for line in lines).encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()

        def close() -> None:
            thread.join(10)
            connections[0].close()

        return close

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def lines() -> Iterator[Lines]:
    lines = Lines()
    yield lines
    lines.close()


def lines_program(
    lines: Lines, directory: Path, settings: dict[str, str]
) -> StreamExecutionEnvironment:
    env = Program(directory, settings=settings, interval="20 ms").environment()
    sink = FileSink.for_row_format(directory / "out", Encoder.simple_string_encoder())
    stream = env.socket_text_stream("127.0.0.1", lines.port).uid("lines").name("the lines")
    stream.sink_to(sink.build()).uid("files")
    return env


def test_a_socket_needs_a_directory_for_its_log(
    lines: Lines, in_s3: dict[str, str], place: StorageUrl, tmp_path: Path
) -> None:
    env = lines_program(lines, tmp_path, in_s3)
    with pytest.raises(MissingIngestionDirectoryError) as caught:
        env.execute("lines")
    assert "the lines" in str(caught.value)
    assert "an ingestion log" in str(caught.value)
    assert f"{place}" in str(caught.value)
    assert "set penstock.ingestion.dir to a directory that outlives the driver" in str(caught.value)


def test_a_socket_resumes_from_its_log_on_a_new_driver(
    lines: Lines, in_s3: dict[str, str], tmp_path: Path
) -> None:
    settings = {**in_s3, "penstock__ingestion__dir": str(tmp_path / "log")}
    close = lines.send("a", "b", "c")
    job = lines_program(lines, tmp_path, settings)._launch("lines")
    job.result()
    launched.append(job)
    eventually(lambda: sum(r.records_in for r in job.micro_batches()) >= 3)
    die(job)
    close()
    close = lines.send("d")
    env = lines_program(lines, tmp_path, settings)
    threading.Timer(1.0, close).start()
    env.execute("lines")
    found = [path.read_text() for path in (tmp_path / "out").rglob("part-*")]
    assert sorted("".join(found).split()) == ["a", "b", "c", "d"]
