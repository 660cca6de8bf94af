"""The snapshots that a savepoint was made from, oldest first, and what was changed.

They are in a property of its metadata. Output that the job of such a snapshot has committed since
then is found through them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.checkpoint.storage.metadata import CheckpointMetadata

ORIGINS = "derived-from"
"""Property of a savepoint that was written from rows: its origins."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """A snapshot that was changed; without a path, one that was written from rows alone."""

    operations: list[str]
    """What was changed, in plain text."""
    time: float
    """When, in seconds since the epoch."""
    path: str = ""
    """Where the snapshot was then."""
    kind: str = ""
    checkpoint: int = 0
    crc: int = 0
    """The checksum of its metadata, which identifies it."""
    job_directory: str = ""
    """The directory of its job then."""


def origins_of(metadata: CheckpointMetadata) -> list[Origin]:
    """Return the origins of a snapshot; none if a job has taken it."""
    text = metadata.properties.get(ORIGINS)
    return [] if text is None else msgspec.json.decode(text, type=list[Origin])


def origins_property(origins: Sequence[Origin]) -> dict[str, str]:
    """Return the property for the metadata."""
    return {ORIGINS: msgspec.json.encode(list(origins)).decode()}
