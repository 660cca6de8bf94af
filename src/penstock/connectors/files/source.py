"""Source that reads the records of files."""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from penstock.common.time import Duration
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.contracts import source
from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.contracts.input_settings import InputSettings
from penstock.connectors.files.enumerator import FileEnumerator, FileSet
from penstock.connectors.files.listing import place_of
from penstock.connectors.formats.format_settings import check_instance
from penstock.connectors.formats.input_file import FileIdentity, InputFile
from penstock.connectors.formats.reader_format import BulkFormat, ReaderFormat
from penstock.connectors.formats.text_lines import StreamFormat
from penstock.errors import MissingPathError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileEnumeratorProvider:
    """How files are divided; they are listed below the given paths, without hidden ones."""

    splits_files: bool = True

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Divide large files between subtasks and micro-batches; compressed ones stay whole."""
        return FileEnumeratorProvider(splits_files=True)

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Read each file as a whole, in one subtask and one micro-batch."""
        return FileEnumeratorProvider(splits_files=False)


@dataclass(frozen=True, slots=True)
class FileSplitAssignerProvider:
    """Which subtask reads what; each micro-batch is always divided evenly, in order."""

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        """Accept Flink's default; Spark decides where a subtask runs."""
        return FileSplitAssignerProvider()


class FileSource(source.Source):
    """The records of files and of all files below directories, in the order of their paths.

    A file must be complete when it appears: write it elsewhere, or under a hidden name that starts
    with ``.`` or ``_``, and rename it. If it changes while it is read, the job fails.
    """

    def __init__(self, files: FileSet) -> None:
        self._files = files

    @staticmethod
    def for_record_stream_format(
        stream_format: StreamFormat, *paths: str | os.PathLike[str]
    ) -> FileSourceBuilder:
        """Return the builder of a source of these files and directories."""
        return _builder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(
        bulk_format: BulkFormat, *paths: str | os.PathLike[str]
    ) -> FileSourceBuilder:
        """Return the builder of a source of files in a bulk format such as Parquet."""
        return _builder(bulk_format, paths)

    def boundedness(self) -> source.Boundedness:
        is_bounded = self._files.discovery_interval is None
        return source.Boundedness.BOUNDED if is_bounded else source.Boundedness.CONTINUOUS_UNBOUNDED

    def type_info(self) -> TypeInformation | None:
        return self._files.reader_format.type_info()

    def paths_on_hosts(self) -> Sequence[Path]:
        return [root for root in self._files.roots if isinstance(root, Path)]

    def enumerator(self, context: source.EnumeratorContext) -> source.SourceEnumerator:
        return FileEnumerator(self._files, context)

    def with_settings(self, settings: InputSettings) -> FileSource:
        return FileSource(replace(self._files, settings=settings))

    def read(self, split_range: source.SplitRange) -> Iterator[source.Chunk]:
        return self._read(split_range, self._files.reader_format.read)

    def read_lists(self, split_range: source.SplitRange) -> Iterator[list[Any]]:
        return self._read(split_range, self._files.reader_format.read_lists)

    def _read(
        self, split_range: source.SplitRange, read: Callable[[InputFile, int, int], Iterator[T]]
    ) -> Iterator[T]:
        planned = split_range.identity
        identity = None if planned is None else FileIdentity(*planned)
        with self._files.open(split_range.split, identity) as file:
            with file.changes_first():
                yield from read(file, split_range.start, split_range.end)
            # Nothing counts that was read before this: the micro-batch is not published.
            file.verify()


def _builder(
    reader_format: ReaderFormat, paths: tuple[str | os.PathLike[str], ...]
) -> FileSourceBuilder:
    needs = "a file source needs a format such as StreamFormat.…"
    check_instance(reader_format, ReaderFormat, needs)  # type: ignore[type-abstract]
    require(paths, "a file source needs at least one path", ValueError)
    roots = tuple(map(place_of, paths))
    for root in roots:
        if isinstance(root, Path) and not root.exists():
            raise MissingPathError(str(root))
    return FileSourceBuilder(FileSet(roots, reader_format))


class FileSourceBuilder:
    """Builds a :class:`FileSource`."""

    def __init__(self, files: FileSet) -> None:
        self._files = files

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        """Read without end, and look for new files at this interval."""
        seconds = discovery_interval.nanos / 1e9
        message = f"a discovery interval must be positive; got {discovery_interval!r}"
        require(seconds > 0, message, ValueError)
        return self._with(discovery_interval=seconds)

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files that exist when the job starts, and end; the default."""
        return self._with(discovery_interval=None)

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        """Set whether files are divided."""
        return self._with(splits_files=file_enumerator.splits_files)

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder:
        """Accept Flink's assigner, which has no effect."""
        return self

    def build(self) -> FileSource:
        """Build the source."""
        return FileSource(self._files)

    def _with(self, **changes: Any) -> FileSourceBuilder:
        self._files = replace(self._files, **changes)
        return self
