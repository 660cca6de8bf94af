"""A sink with a minimal engine around it, which can be killed at any point."""

from __future__ import annotations

import errno
import gc
import hashlib
import importlib
import os
import runpy
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from types import FrameType
from typing import Any

import cloudpickle
import pyarrow.parquet as pq
import pytest

import penstock.connectors
from penstock.common import Row, Types
from penstock.common.serialization import Encoder
from penstock.common.storage_url import StorageUrl
from penstock.connectors.collect_sink import CollectSink
from penstock.connectors.contracts.committer import Committer, CommitterContext
from penstock.connectors.contracts.committing import CommitReport, commit_all
from penstock.connectors.contracts.sink import (
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkSnapshot,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.files.bucket_assigner import BucketAssigner
from penstock.connectors.files.rolling_policy import RollingPolicy
from penstock.connectors.files.sink import FileSink
from penstock.connectors.formats.columnar.writers import ParquetBulkWriters
from penstock.connectors.print_sink import PrintSink
from penstock.connectors.two_phase.sink import AtLeastOnceSink
from penstock.errors import PenstockError
from penstock.storage.clients.s3_uploads import MultipartUploads
from penstock.storage.object_storage import ObjectStorage

PARALLELISM = 2


OWN_SINK = Path(__file__).parents[2] / "examples" / "own_sink.py"

Fixture = Callable[[str], Any]
"""Returns the value of a fixture, which starts only if a case requests it."""


class Shows(Enum):
    """When output becomes visible in a job without checkpoints."""

    WITH_MICRO_BATCHES = auto()
    AT_THE_END = auto()


@dataclass
class Case:
    """A sink, and a way to read its visible output.

    ``leftovers`` returns files that are not visible output. ``record`` makes a
    record of a text.
    """

    sink: Sink
    shown: Callable[[], list[str]]
    leftovers: Callable[[], list[Path]] = list
    record: Callable[[str], Any] = field(default=lambda text: text)
    type_info: Any = field(default_factory=Types.STRING)
    shows: Shows = Shows.AT_THE_END
    keeps_order: bool = True
    """Whether the visible output has the order in which one subtask wrote it."""
    has_connections: bool = False
    deaths: int = 40
    """Before how many lines it dies at most, where it dies before any."""
    stride: int = 1
    """Of how many file operations one fails, where any may."""
    publishers: list[SinkPublisher] = field(default_factory=list)

    def close_files_of_killed(self) -> None:
        """Close what killed attempts had open, as the operating system would."""
        if self.has_connections:
            gc.collect(1)

    def close(self) -> None:
        """Close all its publishers, also those that a real crash would have ended."""
        for publisher in self.publishers:
            with suppress(PenstockError):
                publisher.close()


def printing(directory: Path, fixture: Fixture) -> Case:
    lines: list[str] = []
    capsys = fixture("capsys")

    def shown() -> list[str]:
        printed = capsys.readouterr().out.splitlines()
        lines.extend(line.removeprefix("1> ") for line in printed)
        return [line.removeprefix("2> ") for line in lines]

    return Case(PrintSink(), shown, shows=Shows.WITH_MICRO_BATCHES)


def collecting(directory: Path, fixture: Fixture) -> Case:
    received: list[str] = []
    work = directory / "work"
    return Case(
        CollectSink(received.extend),
        lambda: list(received),
        lambda: files_in(work),
        shows=Shows.WITH_MICRO_BATCHES,
    )


def by_one_function(directory: Path, fixture: Fixture) -> Case:
    received: list[str] = []
    sink = AtLeastOnceSink(received.extend)
    return Case(sink, lambda: list(received), shows=Shows.WITH_MICRO_BATCHES)


def by_five_functions(directory: Path, fixture: Fixture) -> Case:
    """The sink that the documentation shows."""
    database = directory / "orders.db"
    sink: Sink = runpy.run_path(str(OWN_SINK))["sqlite_sink"](database)

    def column(name: str, table: str) -> list[str]:
        if not database.exists():
            return []
        with closing(sqlite3.connect(database)) as connection:
            query = f"SELECT {name} FROM {table} ORDER BY rowid"
            return [value for (value,) in connection.execute(query)]

    return Case(
        sink,
        lambda: column("value", "orders"),
        lambda: [*files_in(directory / "work"), *map(Path, column("name", "staged"))],
        has_connections=True,
    )


def visible(target: Path) -> list[Path]:
    """Finished files in the order in which their writers began them."""
    found = (path for path in target.rglob("part-*") if ".staging" not in str(path))
    return sorted(found, key=lambda path: (path.name[:41], int(path.name[42:])))


def files_in(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def row_files(directory: Path, policy: RollingPolicy) -> Case:
    target = directory / "out"
    builder = FileSink.for_row_format(str(target), Encoder.simple_string_encoder())
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    return Case(
        builder.with_rolling_policy(policy).build(),
        lambda: [line for path in visible(target) for line in path.read_text().splitlines()],
        lambda: [path for path in target.rglob("*") if path not in visible(target)],
    )


def rolled_files(directory: Path, fixture: Fixture) -> Case:
    return row_files(directory, RollingPolicy.on_checkpoint_rolling_policy())


def growing_files(directory: Path, fixture: Fixture) -> Case:
    """Parts of about 60 bytes, which outlive checkpoints."""
    return row_files(directory, RollingPolicy.default_rolling_policy(part_size=60))


def large_files(directory: Path, fixture: Fixture) -> Case:
    return row_files(directory, RollingPolicy.default_rolling_policy(part_size=50_000))


def parquet_files(directory: Path, fixture: Fixture) -> Case:
    target = directory / "out"
    row_type = Types.ROW_NAMED(["text"], [Types.STRING()])
    builder = FileSink.for_bulk_format(target, ParquetBulkWriters.for_row_type(row_type))
    return Case(
        builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build(),
        lambda: [
            row["text"] for path in visible(target) for row in pq.read_table(path).to_pylist()
        ],
        lambda: [path for path in target.rglob("*") if path not in visible(target)],
        Row,
        row_type,
    )


Make = Callable[[Path, Fixture], Case]


def on_a_server(server: str, module: str, name: str) -> Any:
    """Return a case that the tests of a server's sink define."""

    def make(directory: Path, fixture: Fixture) -> Case:
        cases = importlib.import_module(f"tests.servers.{module}")
        case: Case = getattr(cases, name)(fixture(server), directory)
        case.has_connections, case.deaths, case.stride = True, 6, 7
        if server == "s3":
            case.deaths, case.stride = 20, 1
        return case

    make.__name__ = f"{server}_{name.removesuffix('_case')}"
    return pytest.param(make, marks=getattr(pytest.mark, server), id=make.__name__)


def name_of(make: Make) -> str:
    return make.__name__


WITHOUT_SERVERS: list[Any] = [
    collecting,
    rolled_files,
    growing_files,
    parquet_files,
    by_five_functions,
]
FILES_IN_S3 = [
    on_a_server("s3", "file_sink_case", "rolled_case"),
    on_a_server("s3", "file_sink_case", "parquet_case"),
]
WITH_SERVERS = [
    on_a_server("kafka", "kafka_sink_case", "exactly_once_case"),
    on_a_server("postgres", "postgres_sink_case", "two_phase_case"),
    on_a_server("postgres", "postgres_sink_case", "single_phase_case"),
    *FILES_IN_S3,
]
GROWING_IN_S3 = [
    on_a_server("s3", "file_sink_case", "growing_case"),
    on_a_server("s3", "file_sink_case", "without_uploads_case"),
]
"""They make a file of every few values: not for tests with many."""
TRANSACTIONAL = [*WITHOUT_SERVERS, *WITH_SERVERS, *GROWING_IN_S3]
TAKING_ANYTHING: list[Any] = [printing, by_one_function, collecting, large_files]
SHOWING_WHAT_COUNTS: list[Any] = [
    *TAKING_ANYTHING,
    parquet_files,
    by_five_functions,
    *WITH_SERVERS,
    on_a_server("postgres", "postgres_sink_case", "upsert_case"),
]
SHOWING_WHAT_IS_STAGED = [on_a_server("kafka", "kafka_sink_case", "at_least_once_case")]
LARGE = "x" * 70_000


class Attempt:
    """One attempt of a job that has one step: the sink."""

    def __init__(
        self,
        case: Case,
        directory: Path,
        name: str = "a1",
        restored: Sequence[bytes] = (),
        parallelism: int = PARALLELISM,
        *,
        job: str = "job",
        job_instance: str | None = None,
        job_id: str | None = None,
        checkpointed: bool = True,
        driver: str = "work",
        store: StorageUrl | None = None,
        storage_options: Mapping[str, str] | None = None,
        commits: Sequence[bytes] | None = None,
    ) -> None:
        # A server stores data of each job, and tests share it.
        job_instance = (
            job_instance
            or hashlib.blake2b(f"{directory} {job}".encode(), digest_size=6).hexdigest()
        )
        self._case = case
        self._name = name
        self._job = job_id or f"{job}-{job_instance}"
        self._birth = job_instance
        self._staging_dir = directory / f"staging-{job}" / "step"
        self._work_dir = directory / driver / job / "step"
        self._store = None if store is None else store / job / "step"
        self._storage_options = storage_options or {}
        self._parallelism = parallelism
        self._batch = 0
        self.recommitted = CommitReport()
        if commits is not None:
            # As the engine does: what is restored is committed before a publisher is opened.
            self.recommitted = self.commit(commits)
            self.sweep(commits)
        self.publisher = case.sink.publisher(
            PublisherContext(
                parallelism=parallelism,
                name="the sink",
                work_dir=self._work_dir,
                staging_dir=self._staging_dir,
                job=self._job,
                attempt=name,
                checkpointed=checkpointed,
                restored=restored,
                job_instance=job_instance,
                store=self._store,
            )
        )
        case.publishers.append(self.publisher)

    def writer(self, subtask: int, *, task_attempt: int = 0, type_info: Any = None) -> SinkWriter:
        """Make the writer of a task attempt in the next micro-batch."""
        in_the_task: Sink = cloudpickle.loads(cloudpickle.dumps(self._case.sink))
        return in_the_task.writer(
            WriterContext(
                subtask=subtask,
                parallelism=self._parallelism,
                staging_dir=self._staging_dir,
                name=f"{self._name}-{self._batch}-0-{subtask}-{task_attempt}",
                type_info=type_info or self._case.type_info,
                job=self._job,
                attempt=self._name,
                work_dir=self._work_dir,
                job_instance=self._birth,
                store=self._store,
            )
        )

    def stage(self, subtask: int, texts: Sequence[str], *, task_attempt: int = 0) -> bytes:
        writer = self.writer(subtask, task_attempt=task_attempt)
        for text in texts:
            writer.write(self._case.record(text))
        return writer.stage()

    def publish(self, *texts: Sequence[str]) -> None:
        """Run a micro-batch, one list per subtask."""
        self.take([self.stage(subtask, part) for subtask, part in enumerate(texts)])

    def take(self, staged: Sequence[bytes]) -> None:
        """Publish a micro-batch and remove its staged files, as the engine does."""
        self.publisher.publish(staged)
        self._batch += 1
        for path in files_in(self._staging_dir):
            path.unlink()

    def snapshot(self, checkpoint: int = 1, *, flush: bool = True) -> SinkSnapshot:
        return self.publisher.at_barrier(checkpoint, flush=flush)()

    def commit(self, committables: Sequence[bytes]) -> CommitReport:
        with closing(self.committer()) as committer:
            return commit_all(
                committer, committables, retries=0, pause=lambda _: None, step="the sink"
            )

    def sweep(self, keep: Sequence[bytes]) -> None:
        with closing(self.committer()) as committer:
            committer.sweep(keep)

    def discard(self, discarded: Sequence[bytes], retained: Sequence[bytes]) -> None:
        with closing(self.committer()) as committer:
            committer.discard(discarded, retained)

    def committer(self) -> Committer:
        """Return a new committer, as another process would have."""
        committer = self.optional_committer()
        assert committer is not None
        return committer

    def optional_committer(self) -> Committer | None:
        return self._case.sink.committer(
            CommitterContext(
                self._job,
                self._name,
                "the sink",
                self._work_dir,
                job_instance=self._birth,
                store=self._store,
                storage_options=self._storage_options,
            )
        )


class Killed(BaseException):
    """Simulates the end of the process."""


_OPERATIONS: dict[Any, Sequence[str]] = {
    os: ("fsync", "link", "mkdir", "rename", "replace", "unlink"),
    ObjectStorage: ("replace", "write", "give_name", "delete_all", "stat", "stream"),
    MultipartUploads: ("create", "put_part", "copy_part", "complete", "abort"),
}


@contextmanager
def killed_at(
    operation: int, monkeypatch: pytest.MonkeyPatch, error: type[BaseException] = Killed
) -> Iterator[list[str]]:
    """Die around the n-th file operation: before it if n is even, after it if n is odd.

    What asks or changes a store is such an operation, too.
    """
    done: list[str] = []

    def faulty(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            at = len(done)
            done.extend((f"before {name}", f"after {name}"))
            if at == operation:
                raise error(errno.EIO, "injected")
            result = original(*args, **kwargs)
            if at + 1 == operation:
                raise error(errno.EIO, "injected")
            return result

        return call

    with monkeypatch.context() as patch:
        for owner, names in _OPERATIONS.items():
            for name in names:
                patch.setattr(owner, name, faulty(name, getattr(owner, name)))
        yield done


_MORTAL = (str(Path(penstock.connectors.__file__).parent), str(OWN_SINK))


class Lines:
    """Counts the lines of sinks that run in this thread."""

    def __init__(self, dies_before: int | None = None) -> None:
        self.run = 0
        self._dies_before = dies_before

    def __enter__(self) -> Lines:
        self._before = sys.gettrace()
        sys.settrace(self._enters)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _enters(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._runs if frame.f_code.co_filename.startswith(_MORTAL) else None

    def _runs(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            self.run += 1
            if self.run == self._dies_before:
                raise Killed
        return self._runs


def some_lines(count: int, most: int) -> list[int]:
    """Choose lines to die before, the first and the last among them."""
    return sorted({1 + (count - 1) * n // (most - 1) for n in range(most)})
