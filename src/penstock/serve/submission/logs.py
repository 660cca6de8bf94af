"""Reads the logs of submitted jobs in pieces, without the credentials of the job."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.common.config.configuration_file import load_configuration
from penstock.errors import ConfigurationFileError
from penstock.redaction import HIDDEN, is_sensitive, redact
from penstock.serve.submission.records import SubmissionDir

MOST_BYTES = 1 << 20
_SHORTEST_SECRET = 4
_PIECE_BYTES = 1 << 16


class LogFile(msgspec.Struct, frozen=True):
    """One log of a job."""

    name: str
    size: int
    """Up to which offset it goes."""
    mtime: float
    begin: int = 0
    """The first offset that is retained."""


class LogPiece(msgspec.Struct, frozen=True, rename={"next": "next-offset"}):
    """A part of a log: whole lines, unless one is very long."""

    offset: int
    next: int
    size: int
    text: str


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
        """Return a piece; a negative offset counts from the end."""
        size, begin = log.stat().st_size, _begin(log)
        if offset < 0:
            begin = max(begin, size + offset)
        first = max(offset, begin) if offset <= size else begin  # shorter: it was truncated
        with log.open("rb") as file:
            file.seek(first)
            data = file.read(min(length, MOST_BYTES))
        if first > offset and first > 0:
            # It begins within a line.
            skipped = data.find(b"\n") + 1
            data, first = data[skipped:], first + skipped
        if len(data) > 1 and (end := data.rfind(b"\n") + 1) and first + len(data) < size:
            data = data[:end]
        return LogPiece(first, first + len(data), size, self._shown(data))

    def tail(self, log: Path, lines: int) -> str:
        """Return the last lines."""
        text = self.read(log, -_PIECE_BYTES).text
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

    def _shown(self, data: bytes) -> str:
        text = redact(data.decode(errors="replace"))
        for secret in self._secrets():
            text = text.replace(secret, HIDDEN)
        return text

    def _secrets(self) -> list[str]:
        try:
            settings = load_configuration(self.directory.settings).to_dict()
        except ConfigurationFileError:
            return []
        found = {str(value) for key, value in settings.items() if is_sensitive(key)}
        return sorted((s for s in found if len(s) >= _SHORTEST_SECRET), key=len, reverse=True)


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
