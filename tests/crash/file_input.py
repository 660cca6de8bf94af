"""The fast source of the killed job as files: one event per line, at the same pace."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from penstock.common.time import Duration
from penstock.connectors.contracts.input_settings import InputSettings
from penstock.connectors.contracts.source import (
    Boundedness,
    Chunk,
    EnumeratorContext,
    ReadPlan,
    SourceEnumerator,
    SplitRange,
)
from penstock.connectors.files.enumerator import FileEnumerator, FileSet
from penstock.connectors.files.source import FileSource
from penstock.datastream.connectors.file_system import StreamFormat

FILES = 2
LINE_BYTES = 7

T = TypeVar("T")


def input_paths(directory: Path) -> list[Path]:
    """The files, in the order in which they are read."""
    return [directory / f"part-{number}.txt" for number in range(FILES)]


def lines_of(events: Iterable[int]) -> bytes:
    """The content of a file; all lines have the same length."""
    return b"".join(b"%06d\n" % event for event in events)


def publish(directory: Path, number: int, events: int) -> None:
    """Write a file under a hidden name and rename it, unless it is there."""
    path = input_paths(directory)[number]
    hidden = directory / f".{path.name}-{os.getpid()}"
    bounds = [events * n // FILES for n in range(FILES + 1)]
    hidden.write_bytes(lines_of(range(bounds[number], bounds[number + 1])))
    try:
        # A link is never made over a file that another driver has written meanwhile.
        os.link(hidden, path)
    except FileExistsError:
        pass
    finally:
        hidden.unlink()


class PacedFiles(FileSource):
    """Reads a directory, and takes its time while a file is open.

    A watched one gets its files one by one: each when the one before was read. It ends with the
    last one, so that the job does.
    """

    def __init__(self, files: FileSet, events: int, line_s: float) -> None:
        super().__init__(files)
        self._events = events
        self._line_s = line_s

    @staticmethod
    def of(directory: Path, events: int, line_s: float, *, watched: bool) -> PacedFiles:
        """Make the source of a directory."""
        lines = StreamFormat.text_line_format()
        builder = FileSource.for_record_stream_format(lines, directory)
        if watched:
            builder.monitor_continuously(Duration.of_millis(10))
        return PacedFiles(builder.build()._files, events, line_s)

    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        if self._files.discovery_interval is None:
            return FileEnumerator(self._files, context)
        return _Arrivals(self._files, context, self._events)

    def with_settings(self, settings: InputSettings) -> PacedFiles:
        files = super().with_settings(settings)._files
        return PacedFiles(files, self._events, self._line_s)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        return self._slowly(split_range, super().read(split_range))

    def read_lists(self, split_range: SplitRange) -> Iterator[list[Any]]:
        return self._slowly(split_range, super().read_lists(split_range))

    def _slowly(self, split_range: SplitRange, chunks: Iterator[T]) -> Iterator[T]:
        lines = (split_range.end - split_range.start) / LINE_BYTES
        for chunk in chunks:
            time.sleep(self._line_s * lines)
            yield chunk


class _Arrivals(FileEnumerator):
    """Adds the next file when there is nothing else to read, and ends after the last one."""

    def __init__(self, files: FileSet, context: EnumeratorContext, events: int) -> None:
        super().__init__(files, context)
        self._events = events

    def plan(self, max_records: int) -> ReadPlan:
        if not self._waiting:
            self._add_next()
        return super().plan(max_records)

    def finished(self) -> bool:
        return not self._waiting and all(str(path) in self._finished for path in self._paths)

    @property
    def _paths(self) -> Sequence[Path]:
        return input_paths(self._directory)

    @property
    def _directory(self) -> Path:
        (directory,) = self._files.roots
        assert isinstance(directory, Path)
        return directory

    def _add_next(self) -> None:
        for number, path in enumerate(self._paths):
            if not path.exists():
                publish(self._directory, number, self._events)
                break
