"""Contract of the places where a file sink has its files: a directory, or a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Generic, NamedTuple, TypeVar
from uuid import UUID, uuid4

from penstock.common.storage_url import Location
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.files.committables import Committable, Entry
from penstock.connectors.files.rolling_policy import Piece

P = TypeVar("P", bound=Committable)
T = TypeVar("T")
R = TypeVar("R")


class OpenPart(NamedTuple):
    """A file that a task is writing.

    ``add`` writes a record and returns the size of the file so far if it may end there, else 0.
    ``finish`` writes the end; it does not close the file.
    """

    add: Callable[[Any], int]
    finish: Callable[[], None]


class PartFormat(ABC):
    """The format of a file sink's files."""

    joins_bytes: ClassVar[bool] = False
    """Whether several files, their bytes one after the other, are a file with all their records."""

    @abstractmethod
    def begin(self, file: BinaryIO, type_info: TypeInformation | None) -> OpenPart:
        """Begin a file, in the task."""

    @abstractmethod
    def join(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        """Write the records of finished files into another one, in order, on the driver."""


@dataclass(frozen=True, slots=True)
class Part:
    """Pieces that go into one part file, and its final path.

    ``in_state`` are the pieces that may be in the state of an older checkpoint.
    """

    final: Location
    pieces: list[Piece]
    in_state: frozenset[str]


class NewPiece(ABC):
    """A piece that a task is writing into ``file``."""

    path: str
    file: BinaryIO

    @abstractmethod
    def finish(self) -> tuple[int, int]:
        """Close the file, let others find it, and return its size and its CRC-32."""

    @abstractmethod
    def discard(self) -> None:
        """Remove and close it, whether it is finished or not; best effort."""


class PartFiles(ABC, Generic[P]):
    """The files of one step of a file sink, as one attempt sees them.

    They come into being as pieces, in tasks. The driver makes a committable of the pieces of a part
    at a barrier, and lets the part appear under its final path when the checkpoint is complete.
    Pieces stay as they are when a part is made of them: an older checkpoint may have them in its
    state.
    """

    kind: ClassVar[type[Committable]]
    """Of its committables."""
    threads: ClassVar[int] = 1
    """How many parts appear at the same time."""

    @abstractmethod
    def new_piece(self, name: str) -> NewPiece:
        """Begin a piece, in a task; no other one has this name."""

    @abstractmethod
    def remove_staged(self, prefix: str) -> None:
        """Remove the pieces of this attempt whose names begin with a prefix, as far as possible."""

    def writer_id(self) -> UUID:
        """Return what the names of part files begin with, different for every caller."""
        return uuid4()

    @abstractmethod
    def has(self, path: str) -> bool:
        """Whether this is a path in a place of this kind."""

    @abstractmethod
    def owns(self, path: str) -> bool:
        """Whether this step wrote a piece, below this path; if not, another job may remove it."""

    @abstractmethod
    def check_size(self, piece: Piece) -> None:
        """Check that a piece of a restored snapshot is there.

        Raises:
            LostStagedFileError: it is missing, or of another size.
        """

    @abstractmethod
    def keep(self, pieces: Sequence[Piece]) -> None:
        """Make pieces durable, and check them, for the state of a checkpoint."""

    @abstractmethod
    def prepare(self, parts: Sequence[Part], part_format: PartFormat) -> list[P]:
        """Make parts durable, invisible and checked; may be called again after it raised.

        They need no piece of another job from then on.
        """

    @abstractmethod
    def make_visible(self, part: P) -> bool:
        """Let a part appear durably under its final path, never a second time; false if it had.

        What tells that it has appeared is recorded before the next part: a final file may be moved
        away at any time, and the call be repeated.

        Raises:
            ConnectorError: that is impossible. Nothing is lost.
            OSError: it is unknown whether it appeared.
        """

    @abstractmethod
    def finish(self, parts: Sequence[P]) -> None:
        """Remove what visible parts were made of."""

    def discard(self, discarded: Iterable[Entry], retained: Iterable[Entry]) -> None:
        """Remove what only discarded checkpoints needed."""
        needed = {path for entry in retained for path in entry.needed}
        self.remove({path for entry in discarded for path in entry.removable} - needed)

    @abstractmethod
    def remove(self, paths: Iterable[str]) -> None:
        """Remove those files that this step wrote; what fails now is left to `sweep`."""

    @abstractmethod
    def sweep(self, keep: Iterable[Entry]) -> None:
        """Remove what this and older attempts staged, and no entry needs."""


def in_parallel(do: Callable[[T], R], all_of: Sequence[T], threads: int) -> list[R]:
    """Return what a function returns for each of some arguments; all calls have ended then."""
    if threads == 1 or len(all_of) <= 1:
        return [do(one) for one in all_of]
    with ThreadPoolExecutor(min(len(all_of), threads), "file-sink") as pool:
        futures = [pool.submit(do, one) for one in all_of]
    return [future.result() for future in futures]
