"""Stores the offsets a source started from, until its first checkpoint holds them.

A job may fail before its first checkpoint. If the next attempt resolved ``latest`` again, it would
start later and lose the records in between.
"""

from __future__ import annotations

import hashlib

import msgspec

from penstock.common.storage_url import Location
from penstock.storage.storages import storage_at


class InitialOffsets(msgspec.Struct, frozen=True):
    """The starting and stopping offsets of each split."""

    starts: dict[str, int]
    stops: dict[str, int]


class InitialOffsetsFile:
    """A durable file per restore lineage of a job; the first one written is final.

    ``request`` identifies what the offsets were resolved for: a program that is changed to start
    elsewhere, before there is any checkpoint, gets a new file.
    """

    def __init__(self, place: Location, lineage: str, request: str) -> None:
        self._storage = storage_at(place)
        name = hashlib.sha256(f"{lineage}\0{request}".encode("utf-8", "surrogatepass")).hexdigest()
        self._path = f"first-start/{name[:32]}.json"

    def read(self) -> InitialOffsets | None:
        """Return the stored offsets; None if there are none."""
        try:
            return msgspec.json.decode(self._storage.read(self._path), type=InitialOffsets)
        except FileNotFoundError:
            return None

    def write(self, offsets: InitialOffsets) -> InitialOffsets:
        """Store offsets durably and return the valid ones: another attempt may have been faster."""
        try:
            self._storage.create(self._path, msgspec.json.encode(offsets))
        except FileExistsError:
            offsets = msgspec.json.decode(self._storage.read(self._path), type=InitialOffsets)
        return offsets
