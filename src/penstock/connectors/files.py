"""Source of the records in files."""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.common.time import Duration
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.file_enumerator import FileEnumerator, FileSet
from penstock.connectors.file_listing import local_path
from penstock.connectors.reader_format import BulkFormat, ReaderFormat
from penstock.connectors.source import (
    Boundedness,
    Chunk,
    EnumeratorContext,
    Source,
    SourceEnumerator,
    SplitRange,
)
from penstock.connectors.text_lines import StreamFormat
from penstock.errors import MissingPathError

__all__ = [
    "FileEnumeratorProvider",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
]


@dataclass(frozen=True, slots=True)
class FileEnumeratorProvider:
    """How files are found: below the given paths, hidden ones left out."""

    splits_files: bool = True

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Cut large files between subtasks and micro-batches; compressed ones stay whole."""
        return FileEnumeratorProvider(splits_files=True)

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Read each file as a whole, in one subtask and one micro-batch."""
        return FileEnumeratorProvider(splits_files=False)


@dataclass(frozen=True, slots=True)
class FileSplitAssignerProvider:
    """Which subtask reads what; penstock always divides each micro-batch evenly, in order."""

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        """Accept what Flink uses by default; where a subtask runs is for Spark to decide."""
        return FileSplitAssignerProvider()


@dataclass(frozen=True, slots=True)
class _Settings:
    reader_format: ReaderFormat
    roots: tuple[Path, ...]
    splits_files: bool = True
    discovery_interval: float | None = None


class FileSource(Source):
    """The records of files, below directories as well, in the order of their paths.

    A file must not change once it was seen: write it elsewhere (or hidden, with a ``.`` or
    ``_`` in front) and rename it into place.
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    @staticmethod
    def for_record_stream_format(
        stream_format: StreamFormat, *paths: str | os.PathLike[str]
    ) -> FileSourceBuilder:
        """Begin a source that reads these files and directories in a format."""
        return _begin(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(
        bulk_format: BulkFormat, *paths: str | os.PathLike[str]
    ) -> FileSourceBuilder:
        """Begin a source that reads these files and directories in a format such as Parquet."""
        return _begin(bulk_format, paths)

    def boundedness(self) -> Boundedness:
        if self._settings.discovery_interval is None:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    def type_info(self) -> TypeInformation | None:
        return self._settings.reader_format.type_info()

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        settings = self._settings
        files = FileSet(
            settings.roots,
            settings.reader_format,
            settings.splits_files,
            settings.discovery_interval,
        )
        return FileEnumerator(files, context)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        path = Path(split_range.split)
        return self._settings.reader_format.read(path, split_range.start, split_range.end)

    def read_lists(self, split_range: SplitRange) -> Iterator[list[Any]]:
        path = Path(split_range.split)
        return self._settings.reader_format.read_lists(path, split_range.start, split_range.end)


def _begin(
    reader_format: ReaderFormat, paths: tuple[str | os.PathLike[str], ...]
) -> FileSourceBuilder:
    if not isinstance(reader_format, ReaderFormat):
        message = f"a file source needs a format such as StreamFormat.…; got {reader_format!r}"
        raise TypeError(message)
    if not paths:
        message = "a file source needs at least one path"
        raise ValueError(message)
    roots = tuple(map(local_path, paths))
    for root in roots:
        if not root.exists():
            raise MissingPathError(str(root))
    return FileSourceBuilder(_Settings(reader_format, roots))


class FileSourceBuilder:
    """Builds a :class:`FileSource`."""

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        """Never end, and look for new files this often."""
        seconds = discovery_interval.nanos / 1e9
        if seconds <= 0:
            message = f"a discovery interval must be positive; got {discovery_interval!r}"
            raise ValueError(message)
        self._settings = replace(self._settings, discovery_interval=seconds)
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """End behind the files that are there when the job starts; the default."""
        self._settings = replace(self._settings, discovery_interval=None)
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        """Choose whether files are cut."""
        self._settings = replace(self._settings, splits_files=file_enumerator.splits_files)
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder:
        """Accept Flink's assigner, which changes nothing here."""
        return self

    def build(self) -> FileSource:
        """Make the source."""
        return FileSource(self._settings)
