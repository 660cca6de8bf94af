"""Reads the logs of submitted jobs in pieces, without the credentials of the job."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.common.config.configuration_file import load_configuration
from penstock.errors import ConfigurationFileError
from penstock.redaction import is_sensitive
from penstock.serve.submission.logs.pieces import MARGIN_BYTES, LogPiece, cut_piece
from penstock.serve.submission.records import SubmissionDir

MOST_BYTES = 1 << 20
_SHORTEST_SECRET = 4
_PIECE_BYTES = 1 << 16
_QUIET_S = 1.0
"""A line without an end is shown when nothing was appended for this long."""


class LogFile(msgspec.Struct, frozen=True):
    """One log of a job."""

    name: str
    size: int
    """Up to which offset it goes."""
    mtime: float
    begin: int = 0
    """The first offset that is retained."""


@dataclass(frozen=True, slots=True)
class JobLogs:
    """The logs of a submitted job, one per start."""

    directory: SubmissionDir

    def files(self) -> list[LogFile]:
        """Return all logs, the newest first."""
        found = []
        for start in reversed(self.directory.starts):
            try:
                facts = start.log.stat()
                begin = _begin(start.log)
            except FileNotFoundError:
                continue
            name = f"start-{start.number}.log"
            found.append(LogFile(name, facts.st_size, facts.st_mtime, begin))
        return found

    def find(self, name: str) -> Path | None:
        """Return the log with a name, None if there is none; the name never becomes a path."""
        for start in self.directory.starts:
            if name == f"start-{start.number}.log" and start.log.is_file():
                return start.log
        return None

    def read(self, log: Path, offset: int, length: int = MOST_BYTES) -> LogPiece:
        """Return a piece; a negative offset counts from the end.

        A line that is just being written is left for the next piece: half of it may be half of a
        credential.
        """
        facts = log.stat()
        is_written = time.time() - facts.st_mtime < _QUIET_S
        return self._read(log, offset, min(max(length, 1), MOST_BYTES), is_written)

    def _read(self, log: Path, offset: int, length: int, is_written: bool) -> LogPiece:
        size, begin = log.stat().st_size, _begin(log)
        wanted = max(begin, size + offset) if offset < 0 else begin
        first = max(offset, wanted) if offset <= size else begin  # shorter: it was truncated
        last = min(size, first + length)
        data = _bytes_at(log, first, last)
        if first > offset and first > begin:
            # It begins within a line.
            skipped = data.find(b"\n") + 1
            data, first = data[skipped:], first + skipped
        lines = data.rfind(b"\n") + 1
        if last < size:
            last = first + lines if lines and len(data) > 1 else last
        elif is_written:
            last = max(first + lines, last - MARGIN_BYTES)
        secrets = self._secrets()
        return cut_piece(log, first, last, begin=begin, size=size, secrets=secrets)

    def tail(self, log: Path, lines: int) -> str:
        """Return the last lines, also one that has no end."""
        text = self._read(log, -_PIECE_BYTES, _PIECE_BYTES, is_written=False).text
        return "\n".join(text.splitlines()[-lines:])

    def stream(self, log: Path) -> Iterator[bytes]:
        """Return everything that is retained of a log, in pieces."""
        offset = _begin(log)
        while True:
            piece = self.read(log, offset)
            if piece.next <= offset:
                return
            yield piece.text.encode()
            offset = piece.next

    def _secrets(self) -> list[str]:
        try:
            settings = load_configuration(self.directory.settings).to_dict()
        except ConfigurationFileError:
            return []
        values = (str(value) for key, value in settings.items() if is_sensitive(key))
        # A part of a log ends anywhere in a value of many lines.
        found = {line.strip() for value in values for line in value.splitlines()}
        return sorted(s for s in found if len(s) >= _SHORTEST_SECRET)


def _bytes_at(log: Path, first: int, last: int) -> bytes:
    with log.open("rb") as file:
        file.seek(first)
        return file.read(last - first)


def _begin(log: Path) -> int:
    """Return the first offset that has data: what is before it was freed."""
    descriptor = os.open(log, os.O_RDONLY)
    try:
        return os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return os.fstat(descriptor).st_size  # there is no data at all
        if error.errno != errno.EINVAL:
            raise
        return 0  # the file system has no holes
    finally:
        os.close(descriptor)
