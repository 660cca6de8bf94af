"""What a checkpoint holds of a file sink: committables, and pieces of files that go on growing."""

from __future__ import annotations

import msgspec

from penstock.connectors.files.rolling_policy import Piece


class PendingPart(msgspec.Struct, frozen=True, tag="pending", array_like=True):
    """A committable: a complete hidden file, its final path, and the job's own pieces in it.

    ``pieces`` were in no checkpoint's state and are removed when the part is visible. ``held`` may
    be in the state of older checkpoints, and are removed with the last of those. ``crc`` is the
    CRC-32 of the hidden file, None if an older version made it.
    """

    pending: str
    final: str
    size: int
    pieces: list[str]
    held: list[str] = []
    crc: int | None = None

    @property
    def needed(self) -> list[str]:
        """The files without which a snapshot that holds this cannot be restored."""
        return [self.pending]

    @property
    def removable(self) -> list[str]:
        """The job's own files that only snapshots with this may need."""
        return [*self.pieces, *self.held]


class StoredPart(msgspec.Struct, frozen=True, tag="stored", array_like=True):
    """A committable in a store: objects whose contents, one after the other, are the final one's.

    ``pieces`` and ``held`` are those of a `PendingPart`, in a store. There is always one of
    ``pieces``: if it is gone, the part was committed. If the final object was uploaded, and only
    has to appear, ``upload`` is the id of its upload, and ``parts`` are the parts of that with
    their checksums. The objects stay until then: an upload may expire.
    """

    final: str
    sources: list[Piece]
    pieces: list[str]
    held: list[str] = []
    upload: str = ""
    parts: list[tuple[str, str]] = []

    @property
    def needed(self) -> list[str]:
        """The objects without which a snapshot that holds this cannot be restored."""
        return [*(source.path for source in self.sources), *self.pieces]

    @property
    def removable(self) -> list[str]:
        """The job's own objects that only snapshots with this may need."""
        return [*self.pieces, *self.held]


class UnrolledPieces(msgspec.Struct, frozen=True, tag="unrolled", array_like=True):
    """Sink state: the pieces, in order, of a part that is not complete yet."""

    subtask: int
    bucket: str
    pieces: list[Piece]

    @property
    def needed(self) -> list[str]:
        """The files without which a snapshot that holds this cannot be restored."""
        return [piece.path for piece in self.pieces]

    @property
    def removable(self) -> list[str]:
        """The same: only snapshots with this need them."""
        return self.needed


Committable = PendingPart | StoredPart
Entry = PendingPart | StoredPart | UnrolledPieces

encode = msgspec.msgpack.encode
decode_entry = msgspec.msgpack.Decoder(Entry).decode
decode_committable = msgspec.msgpack.Decoder(Committable).decode
