"""Uploads final objects of a file sink to S3, without letting them appear."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from zlib import crc32

import msgspec

from penstock.common.storage_url import StorageUrl
from penstock.connectors.files.committables import StoredPart
from penstock.connectors.files.part_files import in_parallel
from penstock.connectors.files.rolling_policy import Piece
from penstock.connectors.files.stored.objects import check_crc, check_size, storage_of
from penstock.connectors.files.stored.staging_url import StagingUrl
from penstock.connectors.files.stored.upload_parts import Segment, divide, is_copied, joined_crc
from penstock.errors import LostStagedFileError
from penstock.storage.clients.s3_uploads import MultipartUploads, UploadedPart, crc_of

Sources = Sequence[tuple[StorageUrl, Piece]]

REQUESTS_AT_ONCE = 16
"""How many small pieces of one part are read at the same time."""


class PartUploads:
    """Multipart uploads whose contents are objects of the same bucket, one after the other."""

    def __init__(self, uploads: MultipartUploads) -> None:
        self._uploads = uploads

    @classmethod
    def of(cls, url: StorageUrl) -> PartUploads | None:
        """Return the uploads to a URL's bucket; None if that is not S3, or without a secret key."""
        uploads = MultipartUploads.of(url)
        return None if uploads is None else cls(uploads)

    def upload(self, part: StoredPart, final: StorageUrl, sources: Sources) -> StoredPart:
        """Upload the contents of the sources, and return the committable with the upload.

        Raises:
            LostStagedFileError: a source is missing, or of another size.
            CorruptStagedRecordsError: the content of a source is another one.
        """
        upload = self._uploads.create(final)
        try:
            content = _Content(self._uploads, final, upload, sources)
            parts = content.uploaded()
        except BaseException:
            with contextlib.suppress(OSError):
                self._uploads.abort(final, upload)
            raise
        return msgspec.structs.replace(part, upload=upload, parts=[tuple(p) for p in parts])

    def complete(self, final: StorageUrl, part: StoredPart) -> None:
        """Let an object appear.

        Raises:
            FileNotFoundError: there is no such upload.
            FileExistsError: there is an object of this name.
        """
        self._uploads.complete(final, part.upload, [UploadedPart(*one) for one in part.parts])

    def abort(self, final: StorageUrl, upload: str) -> None:
        """Remove an upload, if it is there."""
        self._uploads.abort(final, upload)

    def abort_others(self, staging: StagingUrl, keep: Collection[str]) -> None:
        """Remove the uploads that this and older attempts of a step began, except some."""
        prefix = f"{staging.base.path}/" if staging.base.parts else ""
        for target, upload in list(self._uploads.begun(prefix)):
            if upload not in keep and staging.began(target):
                self._uploads.abort(target, upload)


class _Content:
    """Uploads the parts of one object, and checks all of what they are made of."""

    def __init__(
        self, uploads: MultipartUploads, final: StorageUrl, upload: str, sources: Sources
    ) -> None:
        self._uploads = uploads
        self._final = final
        self._upload = upload
        self._sources = sources
        self._sizes = [piece.size for _, piece in sources]
        self._checksums: dict[int, int] = {}
        """By source, of what was uploaded of it so far."""
        self._unknown: set[int] = set()
        """The sources of which the store has copied something without telling a checksum."""

    def uploaded(self) -> list[UploadedPart]:
        """Upload everything."""
        parts = [
            self._copied(number, segments[0])
            if is_copied(segments, self._sizes)
            else self._read(number, segments)
            for number, segments in enumerate(divide(self._sizes), 1)
        ]
        for source, (url, piece) in enumerate(self._sources):
            if source in self._unknown:
                check_size(url, piece.size)
            else:
                check_crc(url, piece.crc, self._checksums.get(source, 0))
        return parts

    def _copied(self, number: int, segment: Segment) -> UploadedPart:
        source, start, end = segment
        url, piece = self._sources[source]
        between = None if end - start == piece.size else (start, end)
        try:
            part = self._uploads.copy_part(self._final, self._upload, number, url, between)
        except FileNotFoundError:
            raise LostStagedFileError(str(url), piece.size, 0) from None
        if part.checksum:
            self._add(segment, crc_of(part.checksum))
        else:
            self._unknown.add(source)
        return part

    def _read(self, number: int, segments: Sequence[Segment]) -> UploadedPart:
        crc = 0
        # In memory is one part, as large as it may be.
        blocks = in_parallel(self._content, segments, REQUESTS_AT_ONCE)
        for segment, block in zip(segments, blocks, strict=True):
            self._add(segment, crc32(block))
            crc = crc32(block, crc)
        return self._uploads.put_part(self._final, self._upload, number, b"".join(blocks), crc)

    def _content(self, segment: Segment) -> bytes:
        source, start, end = segment
        url, piece = self._sources[source]
        storage, path = storage_of(url)
        # One byte more than there should be after its end: the object may have grown.
        length = end - start + (end == piece.size)
        try:
            block = b"".join(storage.stream(path, start, length))
        except FileNotFoundError:
            block = b""
        if len(block) != end - start:
            raise LostStagedFileError(str(url), piece.size, start + len(block))
        return block

    def _add(self, segment: Segment, crc: int) -> None:
        before = self._checksums.get(segment.source, 0)
        length = segment.end - segment.start
        self._checksums[segment.source] = joined_crc(before, crc, length)
