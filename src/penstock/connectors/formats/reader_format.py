"""Contract of the formats that file sources read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.connectors.contracts.source import CHUNK_RECORDS, Chunk, TimestampedChunk
from penstock.connectors.formats.input_file import InputFile

_SAMPLE_BYTES = 64 * 1024


class ReaderFormat(ABC):
    """Turns the bytes of a file into records.

    A file is divided into ranges of bytes. A record belongs to the range in which it starts, or in
    which its block starts if it can only be read with that: whatever the ranges are, together they
    return every record once, in order. The user builds a format, and every task gets its own copy
    by cloudpickle.
    """

    @abstractmethod
    def type_info(self) -> TypeInformation:
        """Return the type of the records."""

    @abstractmethod
    def splittable(self, path: Path) -> bool:
        """Whether a file may be divided at any byte; if not, it is read as a whole."""

    @abstractmethod
    def read(self, file: InputFile, start: int, end: int) -> Iterator[Chunk]:
        """Yield the records that start in a range of bytes, in order; called in a task.

        A record or block above the limits of ``file.settings`` is an error, raised before it is in
        memory as a whole.
        """

    def read_lists(self, file: InputFile, start: int, end: int) -> Iterator[list[Any]]:
        """Yield the same records as Python lists."""
        for chunk in self.read(file, start, end):
            assert not isinstance(chunk, TimestampedChunk), "files have no timestamps"
            yield chunk if isinstance(chunk, list) else chunk.to_pylist()

    def block_starts(self, file: InputFile) -> Sequence[int] | None:
        """Return where large blocks of a splittable file start; None if there are no such blocks.

        Called on the driver. A range may begin and end anywhere, but one that ends where a block
        starts leaves no range without records.
        """
        return None

    def bytes_per_record(self, file: InputFile) -> float:
        """Estimate the length of records from a splittable file; called on the driver."""
        sample = file.buffered.read(_SAMPLE_BYTES)
        return len(sample) / max(1, sample.count(b"\n"))


class BulkFormat(ReaderFormat):
    """A format whose records are read in batches, such as Parquet."""


def in_chunks(records: list[Any]) -> Iterator[list[Any]]:
    """Yield records in lists that are short enough for a chunk."""
    if 0 < len(records) <= CHUNK_RECORDS:
        yield records
        return
    for first in range(0, len(records), CHUNK_RECORDS):
        yield records[first : first + CHUNK_RECORDS]
