"""Stores the batches of a streaming query in Arrow files, from which the tasks read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from penstock.connectors.contracts.snapshot_files import describe_file
from penstock.connectors.contracts.source import CHUNK_RECORDS, ReadPlan, SplitRange
from penstock.storage.durable_files import sync_directory, sync_file

_WRITTEN = "name string, rows long, size long, crc long"


class LoggedFile(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive rows of one batch; all rows of a stream are numbered."""

    name: str
    first: int
    rows: int
    size: int
    crc: int
    """The CRC-32 of the whole file, computed by the task that wrote it."""

    @property
    def end(self) -> int:
        """The number of the row after its last one."""
        return self.first + self.rows

    def overlaps(self, start: int, end: int) -> bool:
        """Whether it has rows in this range."""
        return self.first < end and self.end > start

    def slice(self, directory: Path, start: int, end: int) -> SplitRange:
        """Return the part of the file that is in this range."""
        path = str(directory / self.name)
        return SplitRange(path, max(start - self.first, 0), min(end - self.first, self.rows))


def write_batch(df: DataFrame, directory: Path, batch: int, first: int) -> list[LoggedFile]:
    """Write all rows of a batch in one pass; return the files of the successful tasks.

    A retried task writes another file; the files of failed tasks are removed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written = df.mapInArrow(_Writer(str(directory), batch), _WRITTEN).collect()
    files = []
    for row in written:
        files.append(LoggedFile(row.name, first, row.rows, row.size, row.crc))
        first += row.rows
    named = {file.name for file in files}
    for path in directory.glob(f"{batch}-*"):
        if path.name not in named:
            path.unlink(missing_ok=True)
    sync_directory(directory)
    return files


class _Writer:
    """Writes one partition of a batch, in a Spark task."""

    def __init__(self, directory: str, batch: int) -> None:
        self._directory = directory
        self._batch = batch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        name = f"{self._batch}-{context.partitionId():05d}-{context.taskAttemptId()}.arrow"
        path = Path(self._directory, name)
        rows, file = 0, None
        for batch in batches:
            if file is None:
                file = pa.ipc.new_file(str(path), batch.schema)
            if batch.num_rows:
                file.write_batch(batch)
                rows += batch.num_rows
        if file is None:
            return
        file.close()
        if rows:
            sync_file(path)
            written = describe_file(path.parent, name)
            row = {"name": name, "rows": rows, "size": written.size, "crc": written.crc}
            yield pa.RecordBatch.from_pylist([row])


def ranges_of(
    files: Sequence[LoggedFile], directory: Path, start: int, end: int, parallelism: int
) -> ReadPlan:
    """Split a range of rows into a contiguous share for each subtask."""
    share = -(-(end - start) // parallelism)
    plan: ReadPlan = []
    while start < end:
        until = min(start + share, end)
        plan.append([f.slice(directory, start, until) for f in files if f.overlaps(start, until)])
        start = until
    return plan


def read_range(split_range: SplitRange) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range of a file."""
    with pa.memory_map(split_range.split) as mapped, pa.ipc.open_file(mapped) as file:
        first = 0
        for number in range(file.num_record_batches):
            if first >= split_range.end:
                return
            batch = file.get_batch(number)
            begin = max(split_range.start - first, 0)
            part = batch.slice(begin, split_range.end - first - begin)
            first += batch.num_rows
            for at in range(0, part.num_rows, CHUNK_RECORDS):
                yield part.slice(at, CHUNK_RECORDS)
