"""Stores the offsets a source started from, until its first checkpoint holds them.

A job may fail before its first checkpoint. If the next attempt resolved ``latest`` again, it would
start later and lose the records in between.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from penstock.storage.durable_files import (
    give_final_name,
    make_directory,
    sync_directory,
    write_file,
)


class InitialOffsets(msgspec.Struct, frozen=True):
    """The starting and stopping offsets of each split."""

    starts: dict[str, int]
    stops: dict[str, int]


class InitialOffsetsFile:
    """A durable file per restore lineage of a job; the first one written is final.

    ``request`` identifies what the offsets were resolved for: a program that is changed to start
    elsewhere, before there is any checkpoint, gets a new file.
    """

    def __init__(self, work_dir: Path, lineage: str, request: str) -> None:
        self._directory = work_dir / "first-start"
        name = hashlib.sha256(f"{lineage}\0{request}".encode("utf-8", "surrogatepass")).hexdigest()
        self._path = self._directory / f"{name[:32]}.json"

    def read(self) -> InitialOffsets | None:
        """Return the stored offsets; None if there are none."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=InitialOffsets)
        except FileNotFoundError:
            return None

    def write(self, offsets: InitialOffsets, attempt: str) -> InitialOffsets:
        """Store offsets durably and return the valid ones: another attempt may have been faster."""
        make_directory(self._directory)
        hidden = self._path.with_suffix(f".{attempt}-new")
        write_file(hidden, msgspec.json.encode(offsets), "wb")
        try:
            give_final_name(hidden, self._path)
        except FileExistsError:
            offsets = msgspec.json.decode(self._path.read_bytes(), type=InitialOffsets)
        sync_directory(self._directory)
        hidden.unlink(missing_ok=True)
        return offsets
