"""The files of a file sink in a store."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import starmap
from pathlib import Path
from typing import BinaryIO, ClassVar, cast
from uuid import UUID
from zlib import crc32

from penstock.common.config.locations import STORE_SCHEMES, scheme_of
from penstock.common.storage_url import StorageUrl
from penstock.connectors.files.committables import Committable, Entry, StoredPart
from penstock.connectors.files.part_files import (
    NewPiece,
    Part,
    PartFiles,
    PartFormat,
    in_parallel,
)
from penstock.connectors.files.rolling_policy import Piece
from penstock.connectors.files.stored.objects import (
    check_size,
    checked_content,
    facts_of,
    has_content,
    size_of,
    storage_of,
)
from penstock.connectors.files.stored.staging_url import StagingUrl
from penstock.connectors.files.stored.uploads import REQUESTS_AT_ONCE, PartUploads
from penstock.errors import LostPendingFileError, OccupiedPathError, UnsafeNameError
from penstock.ids import is_no_later
from penstock.storage.clients.s3_uploads import UploadedPart, etag_of_upload
from penstock.storage.contract import PIECE_BYTES, pieces_of
from penstock.storage.durable_files import checksum
from penstock.storage.storages import storage_at
from penstock.storage.verified_files import temporary_directory

logger = logging.getLogger("penstock.connectors")

_IN_MEMORY = 8 << 20
"""How much of a piece is in memory; more is in a file without a name on the task's host."""


class _Object(NewPiece):
    def __init__(self, url: StorageUrl) -> None:
        self.path = str(url)
        self._storage, self._name = storage_of(url)
        self.file = cast(BinaryIO, tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115
        self._crc = 0

    def finish(self) -> tuple[int, int]:
        size = self.file.tell()
        self.file.seek(0)
        self._storage.write(self._name, self._content())
        self.file.close()
        return size, self._crc

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(OSError):
            self._storage.delete(self._name)

    def _content(self) -> Iterator[bytes]:
        while block := self.file.read(PIECE_BYTES):
            self._crc = crc32(block, self._crc)
            yield block


class StoredPartFiles(PartFiles[StoredPart]):
    """Pieces as hidden objects, which the final object is made of.

    In S3 that is uploaded at the barrier, as far as possible by copies that the store makes, and
    the upload is completed when the checkpoint is: until then nothing is visible. The pieces stay
    until then. If the upload is gone and the object is not there, because uploads expire, it is
    uploaded again. Every part has an object that its commit deletes, so that a part whose object
    was moved away is not taken for one that never appeared: if all of its pieces have to stay for
    older checkpoints, that is an empty one.

    Other stores, and S3 with credentials that only the client knows, get a hidden object with the
    whole content, which is renamed (HDFS) or copied by the store, if there is no object of the
    final name.
    """

    kind: ClassVar[type[Committable]] = StoredPart
    threads: ClassVar[int] = 4

    def __init__(self, staging: StagingUrl) -> None:
        self._staging = staging
        self._completed: set[str] = set()
        """Uploads that this process has completed, so that discarding them needs no request."""
        self._has_finished = False
        """Whether what comes now is new: what was restored is committed first."""

    # -- pieces ----------------------------------------------------------------------------------

    def new_piece(self, name: str) -> NewPiece:
        return _Object(self._staging.url(name))

    def remove_staged(self, prefix: str) -> None:
        directory = self._staging.root / self._staging.attempt
        storage = storage_at(directory)
        with contextlib.suppress(OSError):
            storage.delete_all([name for name in storage.list("") if name.startswith(prefix)])

    def writer_id(self) -> UUID:
        return self._staging.writer_id()

    def has(self, path: str) -> bool:
        return scheme_of(path) in STORE_SCHEMES

    def owns(self, path: str) -> bool:
        return self._staging.owns(path)

    def check_size(self, piece: Piece) -> None:
        check_size(self._staging.staged(piece.path), piece.size)

    def keep(self, pieces: Sequence[Piece]) -> None:
        # They are durable since their tasks have ended.
        in_parallel(self.check_size, pieces, REQUESTS_AT_ONCE)

    # -- parts -----------------------------------------------------------------------------------

    def prepare(self, parts: Sequence[Part], part_format: PartFormat) -> list[StoredPart]:
        uploads = PartUploads.of(self._staging.base)
        made: list[StoredPart] = []

        def prepare(part: Part) -> StoredPart:
            made.append(pending := self._prepare(part, part_format, uploads))
            return pending

        try:
            return in_parallel(prepare, parts, self.threads)
        except BaseException:
            # A repeated call makes new uploads. What is not aborted now, a sweep aborts.
            self._abort(made)
            raise

    def make_visible(self, part: StoredPart) -> bool:
        sources = self._sources(part)
        pieces = self._pieces(part)  # nothing becomes visible if one of them is a forged name
        is_new = self._appear(part, sources)
        # At once, not with the others: with all of its pieces, a part that was moved away would
        # appear again.
        _delete(pieces[:1])
        return is_new

    def _appear(self, part: StoredPart, sources: Sequence[tuple[StorageUrl, Piece]]) -> bool:
        final = self._staging.final(part.final, sources[0][0])
        uploads = PartUploads.of(final)
        if uploads is not None and part.upload:
            # Completing an upload again succeeds, too.
            was_there = not self._has_finished and size_of(final) is not None
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                uploads.complete(final, part)
                self._completed.add(part.upload)
                return not was_there
        return self._make_again(part, final, sources, uploads)

    def finish(self, parts: Sequence[StoredPart]) -> None:
        self._has_finished = True
        # Whatever cannot be removed now is swept later. The parts are committed in any case.
        with contextlib.suppress(OSError):
            # Those of another job, too, which was restored without a claim: without them nothing
            # can let a part appear again that was moved away.
            _delete(url for part in parts for url in self._pieces(part)[1:])

    def discard(self, discarded: Iterable[Entry], retained: Iterable[Entry]) -> None:
        gone, kept = list(discarded), list(retained)
        super().discard(gone, kept)
        needed = {entry.upload for entry in kept if isinstance(entry, StoredPart)}
        parts = {entry.upload: entry for entry in gone if isinstance(entry, StoredPart)}
        self._abort(part for part in parts.values() if part.upload not in needed | self._completed)
        self._completed -= parts.keys() - needed

    def remove(self, paths: Iterable[str]) -> None:
        with contextlib.suppress(OSError):
            _delete(self._staging.staged(path) for path in paths if self._staging.owns(path))

    def sweep(self, keep: Iterable[Entry]) -> None:
        kept = list(keep)
        needed = {path for entry in kept for path in entry.needed}
        root, attempt = self._staging.root, self._staging.attempt
        storage = storage_at(root)
        old = (n for n in storage.list("") if is_no_later(n.partition("/")[0], attempt))
        storage.delete_all([name for name in old if str(root / name) not in needed])
        uploads = PartUploads.of(self._staging.base)
        if uploads is None:
            storage.delete_unfinished("", lambda path: is_no_later(path.partition("/")[0], attempt))
        else:
            ids = {entry.upload for entry in kept if isinstance(entry, StoredPart)}
            uploads.abort_others(self._staging, ids)

    def _prepare(
        self, part: Part, part_format: PartFormat, uploads: PartUploads | None
    ) -> StoredPart:
        final = cast(StorageUrl, part.final)
        sources = [(self._staging.staged(piece.path), piece) for piece in part.pieces]
        # A piece of another job belongs to that job's checkpoint, which may be restored again.
        own = [piece.path for piece in part.pieces if self.owns(piece.path)]
        pieces = [path for path in own if path not in part.in_state]
        held = [path for path in own if path in part.in_state]
        pending = self._staging.url(f"{final.name}.pending")
        if len(sources) > 1 and not part_format.joins_bytes:
            sources = [(pending, _merged(sources, part_format, pending))]
        elif len(own) < len(sources) or (uploads is None and (len(sources) > 1 or not pieces)):
            # The other job may remove its piece. Without uploads a commit may take the object away,
            # which an older checkpoint may need.
            sources = [(pending, _joined(sources, pending))]
        if sources[0][0] == pending:
            pieces.append(str(pending))
        made = [piece for _, piece in sources]
        if uploads is not None:
            if not pieces:
                storage, path = storage_of(pending)
                storage.replace(path, b"")
                pieces.append(str(pending))
            return uploads.upload(StoredPart(str(final), made, pieces, held), final, sources)
        # Damage that is found before the checkpoint completes loses nothing.
        for _ in checked_content(sources):
            pass
        return StoredPart(str(final), made, pieces, held)

    def _make_again(
        self,
        part: StoredPart,
        final: StorageUrl,
        sources: Sequence[tuple[StorageUrl, Piece]],
        uploads: PartUploads | None,
    ) -> bool:
        """Let a part appear whose upload is gone, or that has none; false if it is there."""
        objects = dict.fromkeys([*self._pieces(part), *(url for url, _ in sources)])
        missing = next((url for url in objects if size_of(url) is None), None)
        found = size_of(final)
        if found is not None:
            if missing is None and not _has_content(final, part):
                raise OccupiedPathError(str(sources[0][0]), str(final))
            # Without its pieces the part was committed. An empty object takes the place of one that
            # was moved away.
            if found not in (0, sum(piece.size for piece in part.sources)):
                logger.warning(
                    "%s has another size than when it was committed: another program has written "
                    "it. It is left as it is.",
                    final,
                )
            return False
        if missing is not None:
            raise LostPendingFileError(str(missing), str(final))
        if part.upload:
            logger.warning(
                "The upload of %s is gone: it was aborted, or has expired by a rule of the bucket. "
                "The object is uploaded again from its pieces.",
                final,
            )
        try:
            if uploads is not None:
                uploads.complete(final, uploads.upload(part, final, sources))
            else:
                self._give_name(final, sources)
        except (FileExistsError, FileNotFoundError):
            # The answer to an earlier request was lost, or another driver was faster.
            if not _has_content(final, part):
                raise OccupiedPathError(str(sources[0][0]), str(final)) from None
            return False
        return True

    def _give_name(self, final: StorageUrl, sources: Sequence[tuple[StorageUrl, Piece]]) -> None:
        url, piece = sources[0]
        if len(sources) > 1:
            # Uploaded when the secret key was known.
            url = self._staging.url(f"{final.name}.pending")
            piece = _joined(sources, url)
        check_size(url, piece.size)
        storage, path = storage_of(url)
        storage.give_name(path, final.path)

    def _sources(self, part: StoredPart) -> list[tuple[StorageUrl, Piece]]:
        return [(self._staging.staged(piece.path), piece) for piece in part.sources]

    def _pieces(self, part: StoredPart) -> list[StorageUrl]:
        return [self._staging.staged(path) for path in part.pieces]

    def _abort(self, parts: Iterable[StoredPart]) -> None:
        for part in parts:
            with contextlib.suppress(OSError, UnsafeNameError):
                final = self._staging.final(part.final, self._sources(part)[0][0])
                if part.upload and self._staging.began(final):
                    uploads = PartUploads.of(final)
                    if uploads is not None:
                        uploads.abort(final, part.upload)


def _has_content(final: StorageUrl, part: StoredPart) -> bool:
    """Whether an object is the final one of a part."""
    if part.upload:
        # Nothing has to be read if the ETag is what it is after an upload of these parts.
        found, etag = facts_of(final), etag_of_upload([UploadedPart(*one) for one in part.parts])
        if found is not None and etag and found.version == etag:
            return found.size == sum(piece.size for piece in part.sources)
    return has_content(final, part.sources)


def _merged(
    sources: Sequence[tuple[StorageUrl, Piece]], part_format: PartFormat, pending: StorageUrl
) -> Piece:
    """Merge finished files of a format on this machine, and write the result."""
    with temporary_directory(None) as directory:

        def fetch(number: int, source: tuple[StorageUrl, Piece]) -> Path:
            path = directory / f"{number}.piece"
            with path.open("xb") as file:
                for block in checked_content([source]):
                    file.write(block)
            return path

        pieces = list(starmap(fetch, enumerate(sources)))
        merged = directory / "merged"
        with merged.open("xb") as file:
            part_format.join(pieces, file)
        storage, path = storage_of(pending)
        storage.write(path, pieces_of(merged))
        return Piece(str(pending), merged.stat().st_size, 0.0, checksum(merged))


def _joined(sources: Iterable[tuple[StorageUrl, Piece]], pending: StorageUrl) -> Piece:
    """Write the contents of objects, one after the other, into another one."""
    crc = size = 0

    def content() -> Iterator[bytes]:
        nonlocal crc, size
        for block in checked_content(sources):
            crc, size = crc32(block, crc), size + len(block)
            yield block

    storage, path = storage_of(pending)
    storage.write(path, content())
    return Piece(str(pending), size, 0.0, crc)


def _delete(urls: Iterable[StorageUrl]) -> None:
    by_place: dict[StorageUrl, list[str]] = {}
    for url in urls:
        by_place.setdefault(url.parent.parent, []).append("/".join(url.parts[-2:]))
    for place, names in by_place.items():
        storage_at(place).delete_all(names)
