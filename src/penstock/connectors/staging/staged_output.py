"""Staged output of a sink: inline while it is small, in a file when it is large.

A writer stages in the task, the publisher collects staged outputs on the driver until a barrier,
the checkpoint names them in its committables, and the committer reads them. All of them use the
same value, `StagedOutput`, and check its size and checksum when they read it.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import msgspec

from penstock.common.contained_paths import path_inside
from penstock.common.new_files import create_file
from penstock.connectors.contracts.sink import PublisherContext, SinkPublisher, WriterContext
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.errors import CorruptStagedRecordsError
from penstock.storage.durable_files import check_size

MAX_INLINE_BYTES = 32 * 1024
"""How much output a checkpoint's metadata may hold of one subtask; more goes into files."""

_MAX_ACKNOWLEDGED_BYTES = 60 * 1024
"""How much output may travel in a task's acknowledgement."""

_BLOCK_BYTES = 1 << 20


class StagedOutput(msgspec.Struct, frozen=True, array_like=True):
    """Some output: in ``data``, or in the file ``name`` below a root that the reader knows.

    Part of persisted committables, so fields are only ever added at the end. ``crc`` is the CRC-32
    of a file, None if it was written without one.
    """

    size: int
    data: bytes = b""
    name: str = ""
    crc: int | None = None

    def path(self, root: Path) -> Path:
        """Return where the file is.

        Raises:
            UnsafeNameError: it is not inside the root.
        """
        return path_inside(root, self.name)

    def check(self, root: Path) -> None:
        """Raise `LostStagedFileError` if the file is not there in full."""
        if self.name:
            check_size(self.path(root), self.size)


def read_staged(root: Path, outputs: Iterable[StagedOutput]) -> Iterator[bytes]:
    """Yield the content of outputs in order, in blocks of at most 1 MiB if they are in files.

    A wrong checksum is found only at the end of a file: commit nothing before this has returned.
    """
    for output in outputs:
        if not output.name:
            yield output.data
            continue
        output.check(root)
        crc = 0
        with output.path(root).open("rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                crc = zlib.crc32(block, crc)
                yield block
        if output.crc is not None and crc != output.crc:
            reason = f"their checksum is {crc:08x}, not {output.crc:08x}"
            raise CorruptStagedRecordsError(str(output.path(root)), reason)


class Spool:
    """Joins bytes to one staged output: in memory while they are few, then in a file of its own.

    The file belongs to no checkpoint until a committable names it; before, a sweep may remove it.
    """

    def __init__(
        self, directory: StagingDirectory, name: str, max_inline: int = MAX_INLINE_BYTES
    ) -> None:
        self._directory = directory
        self._name = name
        self._max_inline = max_inline
        self._blocks: list[bytes] = []
        self._file: BinaryIO | None = None
        self._relative = ""
        self._size = 0
        self._crc = 0

    def add(self, data: bytes) -> None:
        """Append bytes."""
        self._size += len(data)
        self._blocks.append(data)
        if self._size <= self._max_inline:
            return
        if self._file is None:
            self._relative, self._file = self._directory.create(self._name)
        try:
            for block in self._blocks:
                self._crc = zlib.crc32(block, self._crc)
                self._file.write(block)
        except OSError:
            self.abort()
            raise
        self._blocks.clear()

    def finish(self) -> StagedOutput:
        """Close the file and return the output; nothing may be added afterwards."""
        if self._file is None:
            return StagedOutput(self._size, b"".join(self._blocks))
        try:
            self._file.close()
        except OSError:
            self.abort()
            raise
        return StagedOutput(self._size, b"", self._relative, self._crc)

    def abort(self) -> None:
        """Remove and close the file; may be repeated."""
        if self._file is not None:
            # Removed first: closing it writes what is buffered, which a full disk does not take.
            (self._directory.root / self._relative).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._file.close()


class PendingOutput:
    """Collects what one subtask published since the last barrier, in order.

    Files stay as they are and small outputs are spooled together: however long the next barrier
    takes, little is held in memory. Used on the driver by one thread.
    """

    def __init__(self, directory: StagingDirectory) -> None:
        self._directory = directory
        self._outputs: list[StagedOutput] = []
        self._spool: Spool | None = None

    def add(self, output: StagedOutput) -> None:
        """Add what one micro-batch staged."""
        if output.name:
            self._end_spool()
            self._outputs.append(output)
            return
        if self._spool is None:
            self._spool = Spool(self._directory, f"spool-{uuid4().hex}.piece")
        self._spool.add(output.data)

    def finish(self) -> list[StagedOutput]:
        """Return all outputs; nothing may be added afterwards."""
        self._end_spool()
        return self._outputs

    def close(self) -> None:
        """Close an open file, which belongs to no checkpoint."""
        self._end_spool()

    def _end_spool(self) -> None:
        if self._spool is not None:
            self._outputs.append(self._spool.finish())
            self._spool = None


_decode = msgspec.msgpack.Decoder(StagedOutput).decode


def stage_bytes(data: bytes, context: WriterContext) -> bytes:
    """Stage bytes in a task for the publisher alone, and return what the acknowledgement carries.

    No bytes are staged as ``b""``. The file is gone once the micro-batch is published.
    """
    if not data:
        return b""
    if len(data) <= _MAX_ACKNOWLEDGED_BYTES:
        return msgspec.msgpack.encode(StagedOutput(len(data), data))
    path = context.staging_dir / context.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with create_file(path, "wb") as file:
        file.write(data)
    return msgspec.msgpack.encode(StagedOutput(len(data), b"", path.name, zlib.crc32(data)))


def load_staged(staged: bytes, staging_dir: Path) -> bytes:
    """Return on the driver what a task staged with `stage_bytes`."""
    return b"".join(read_staged(staging_dir, [_decode(staged)])) if staged else b""


class ImmediatePublisher(SinkPublisher):
    """Passes what each subtask staged with `stage_bytes` to a function, once it is published."""

    def __init__(self, context: PublisherContext, show: Callable[[bytes], None]) -> None:
        self._staging_dir = context.staging_dir
        self._show = show

    def publish(self, staged: Sequence[bytes]) -> None:
        """Show the output of one micro-batch, in the order of subtasks."""
        for entry in filter(None, staged):
            self._show(load_staged(entry, self._staging_dir))
