"""A sink and the engine around it, small enough to be killed anywhere."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow.parquet as pq
import pytest

from penstock.common import Row, Types
from penstock.common.serialization import Encoder
from penstock.connectors.buckets import BucketAssigner
from penstock.connectors.collect import CollectSink
from penstock.connectors.committer import Committer, CommitterContext
from penstock.connectors.committing import CommitReport, commit_all
from penstock.connectors.file_sink import FileSink
from penstock.connectors.parquet import ParquetBulkWriters
from penstock.connectors.rolling import RollingPolicy
from penstock.connectors.sink import PublisherContext, Sink, SinkCut, SinkWriter, WriterContext

PARALLELISM = 2


@dataclass
class Case:
    """A sink, and a way to see what it has shown so far; files apart from their order."""

    sink: Sink
    shown: Callable[[], list[str]]
    leftovers: Callable[[], list[Path]] = list
    record: Callable[[str], Any] = field(default=lambda text: text)
    type_info: Any = field(default_factory=Types.STRING)


def collecting(directory: Path) -> Case:
    received: list[str] = []
    work = directory / "work"
    return Case(CollectSink(received.extend), lambda: list(received), lambda: files_in(work))


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


def rolled_files(directory: Path) -> Case:
    return row_files(directory, RollingPolicy.on_checkpoint_rolling_policy())


def growing_files(directory: Path) -> Case:
    """Parts of about 60 bytes, which outlive checkpoints."""
    return row_files(directory, RollingPolicy.default_rolling_policy(part_size=60))


def parquet_files(directory: Path) -> Case:
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


TRANSACTIONAL = [collecting, rolled_files, growing_files, parquet_files]


class Attempt:
    """One life of a job that has one step: the sink."""

    def __init__(
        self,
        case: Case,
        directory: Path,
        name: str = "a1",
        restored: Sequence[bytes] = (),
        parallelism: int = PARALLELISM,
    ) -> None:
        self._case = case
        self._directory = directory
        self._name = name
        self._parallelism = parallelism
        self._batch = 0
        self.publisher = case.sink.publisher(
            PublisherContext(
                parallelism, "the sink", directory / "work" / "step", "job", name, True, restored
            )
        )

    def writer(
        self, subtask: int, *, batch: int | None = None, task_attempt: int = 0
    ) -> SinkWriter:
        batch = self._batch if batch is None else batch
        in_the_task: Sink = cloudpickle.loads(cloudpickle.dumps(self._case.sink))
        return in_the_task.writer(
            WriterContext(
                subtask,
                self._parallelism,
                self._directory / "staging" / "step",
                f"{self._name}-{self._batch}-0-{subtask}-0",
                self._case.type_info,
                "job",
                self._name,
                self._directory / "work" / "step",
            )
        )

    def stage(self, subtask: int, texts: Sequence[str]) -> bytes:
        writer = self.writer(subtask)
        for text in texts:
            writer.write(self._case.record(text))
        return writer.stage()

    def publish(self, *texts: Sequence[str]) -> None:
        """Run a micro-batch, one list per subtask."""
        self.publisher.publish([self.stage(subtask, part) for subtask, part in enumerate(texts)])
        self._batch += 1

    def cut(self, checkpoint: int = 1, *, roll_all: bool = True) -> SinkCut:
        return self.publisher.at_barrier(checkpoint, roll_all=roll_all)()

    def commit(self, committables: Sequence[bytes]) -> CommitReport:
        return commit_all(
            self.committer(), committables, retries=0, pause=lambda _: None, step="the sink"
        )

    def committer(self) -> Committer:
        """Make a committer that knows nothing of earlier ones."""
        context = CommitterContext("job", self._name, "the sink", self._directory / "work" / "step")
        committer = self._case.sink.committer(context)
        assert committer is not None
        return committer


class Killed(BaseException):
    """The process is gone."""


_FILE_OPERATIONS = ("fsync", "link", "mkdir", "rename", "replace", "unlink")


@contextmanager
def killed_at(
    operation: int, monkeypatch: pytest.MonkeyPatch, error: type[BaseException] = Killed
) -> Iterator[list[str]]:
    """Die around the n-th file operation: before it if n is even, after it if n is odd."""
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
        for name in _FILE_OPERATIONS:
            patch.setattr(os, name, faulty(name, getattr(os, name)))
        yield done
