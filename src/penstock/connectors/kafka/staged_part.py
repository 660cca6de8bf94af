"""What a checkpoint owes to Kafka: pieces of staged records, and who publishes them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.connectors.kafka.record_blocks import DamagedBlocksError, read_blocks
from penstock.connectors.kafka.serialization import Message
from penstock.errors import CorruptStagedRecordsError, LostStagedFileError

__all__ = ["Account", "Piece", "StagedPart", "decode_part", "decode_piece", "encode"]


class Account(msgspec.Struct, frozen=True, array_like=True):
    """As whom a sink of a job publishes, and where it marks what is published.

    The marker is the offset of ``group`` on partition 0 of ``topic``. Nobody sets it but in a
    transaction of ``transactional_id``.
    """

    transactional_id: str
    group: str
    topic: str


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Blocks of records: in the file of this name, or in ``inline`` if there is no name."""

    name: str
    size: int
    records: int
    inline: bytes = b""


class StagedPart(msgspec.Struct, frozen=True, array_like=True):
    """A committable: what one subtask staged up to a checkpoint, one of ``parts`` of that cut.

    Names of files are relative to ``root``. It carries the account of the job that staged it, so
    that whoever restores it publishes in that job's place, and both do it once.
    """

    account: Account
    attempt: int
    checkpoint: int
    part: int
    parts: int
    root: str
    pieces: list[Piece]

    @property
    def size(self) -> int:
        """Bytes of all pieces."""
        return sum(piece.size for piece in self.pieces)

    @property
    def records(self) -> int:
        """Records in all pieces."""
        return sum(piece.records for piece in self.pieces)

    def paths(self, root: Path | None = None) -> list[Path]:
        """Return the files, below ``root`` if they were moved there."""
        base = Path(self.root) if root is None else root
        return [base / piece.name for piece in self.pieces if piece.name]

    def check(self, root: Path | None = None) -> None:
        """Raise `LostStagedFileError` unless all files are there in full."""
        pieces = (piece for piece in self.pieces if piece.name)
        for path, piece in zip(self.paths(root), pieces, strict=True):
            size = path.stat().st_size if path.exists() else 0
            if size != piece.size:
                raise LostStagedFileError(str(path), piece.size, size)

    def blocks(self, root: Path | None = None) -> Iterator[tuple[str, list[Message]]]:
        """Read topics and messages, in order."""
        base = Path(self.root) if root is None else root
        for piece in self.pieces:
            where = base / piece.name if piece.name else None
            try:
                with io.BytesIO(piece.inline) if where is None else where.open("rb") as file:
                    yield from read_blocks(file)
            except DamagedBlocksError as error:
                place = "the checkpoint" if where is None else str(where)
                raise CorruptStagedRecordsError(place, str(error)) from error


encode = msgspec.msgpack.encode
decode_part = msgspec.msgpack.Decoder(StagedPart).decode
decode_piece = msgspec.msgpack.Decoder(Piece).decode
