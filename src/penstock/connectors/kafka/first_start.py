"""Where a source began in a life of its job: looked up once, however often it dies at first.

Until the first checkpoint nothing else knows it. Looked up again, the end of a topic would be a
later one, and what came in between would be lost.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from penstock.connectors.durable import make_directory, show_under, sync_directory, sync_file

__all__ = ["FirstStart", "FirstStartNote"]


class FirstStart(msgspec.Struct, frozen=True):
    """Where each partition begins and stops, by its split."""

    starts: dict[str, int]
    stops: dict[str, int]


class FirstStartNote:
    """A durable note of one life of a job; the first one that is written stays.

    ``asked`` is what the offsets were looked up for. A program that was changed to begin
    elsewhere, before there was any checkpoint, does begin there.
    """

    def __init__(self, work_dir: Path, life: str, asked: str) -> None:
        self._directory = work_dir / "first-start"
        name = hashlib.sha256(f"{life}\0{asked}".encode("utf-8", "surrogatepass")).hexdigest()
        self._path = self._directory / f"{name[:32]}.json"

    def read(self) -> FirstStart | None:
        """Return what was written in this life, if anything."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=FirstStart)
        except FileNotFoundError:
            return None

    def write(self, start: FirstStart, attempt: str) -> FirstStart:
        """Write it down, and return what counts: if another attempt was faster, what it wrote."""
        make_directory(self._directory)
        hidden = self._path.with_suffix(f".{attempt}-new")
        hidden.write_bytes(msgspec.json.encode(start))
        sync_file(hidden)
        try:
            show_under(hidden, self._path)
        except FileExistsError:
            start = msgspec.json.decode(self._path.read_bytes(), type=FirstStart)
        sync_directory(self._directory)
        hidden.unlink(missing_ok=True)
        return start
