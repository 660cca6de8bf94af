"""The contract of formats that file sources read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.connectors.source import Chunk, TimedChunk

__all__ = ["BulkFormat", "ReaderFormat"]

_SAMPLE_BYTES = 64 * 1024


class ReaderFormat(ABC):
    """How the bytes of a file become records.

    A file is cut into ranges of bytes, and a record belongs to the range in which it starts, or
    in which the block it can only be read with starts: whatever the ranges are, all of them
    together give every record once, in order. The user builds a format, and every task gets its
    own copy by cloudpickle.
    """

    @abstractmethod
    def type_info(self) -> TypeInformation:
        """Tell the type of the records."""

    @abstractmethod
    def splittable(self, path: Path) -> bool:
        """Tell whether a file may be cut at any byte; else it is read as a whole."""

    @abstractmethod
    def read(self, path: Path, start: int, end: int) -> Iterator[Chunk]:
        """Give the records that start in a range of bytes, in order, in a task."""

    def read_lists(self, path: Path, start: int, end: int) -> Iterator[list[Any]]:
        """Give the same records as Python lists."""
        for chunk in self.read(path, start, end):
            assert not isinstance(chunk, TimedChunk), "files know no times"
            yield chunk if isinstance(chunk, list) else chunk.to_pylist()

    def block_starts(self, path: Path) -> Sequence[int] | None:
        """Tell on the driver where blocks start that are worth a micro-batch; None if none are.

        A range may begin and end anywhere; one that ends where a block starts leaves no range
        behind that has nothing in it.
        """
        return None

    def bytes_per_record(self, path: Path) -> float:
        """Guess on the driver, from a look at a file that may be cut, how long its records are."""
        with path.open("rb") as file:
            sample = file.read(_SAMPLE_BYTES)
        return len(sample) / max(1, sample.count(b"\n"))


class BulkFormat(ReaderFormat):
    """A format whose records are read many at a time, such as Parquet."""
