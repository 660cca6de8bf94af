"""Damages files of a job."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from penstock.checkpoint.storage.metadata import CheckpointMetadata, files_of, in_flight_file
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.savepoint.read import verify_files
from tests.crash.driver import job_dir, journal_of
from tests.crash.job_store import on_disk
from tests.crash.pipeline import Variant

KINDS = ("missing", "truncated", "flipped", "empty")


def damage(path: Path, kind: str, rng: random.Random) -> None:
    """Harm a file."""
    data = path.read_bytes()
    match kind:
        case "missing":
            path.unlink()
        case "truncated":
            path.write_bytes(data[: rng.randrange(len(data))])
        case "flipped":
            at = rng.randrange(len(data))
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        case _:
            path.write_bytes(b"")


def waiting_segments(variant: Variant) -> list[Path]:
    """The files of the channel in which most wait now, oldest first."""
    channels: list[Path] = []
    # Directories of dead attempts go while one looks.
    with suppress(FileNotFoundError):
        channels += variant.work.glob("*/*/channels/*")
    return max((sorted(_files(c), key=_changed) for c in channels), key=len, default=[])


def _files(channel: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        yield from channel.glob("*.arrow")


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def located(variant: Variant, named: str) -> Path:
    """The path of a snapshot that the journal names."""
    job = job_dir(variant)
    return on_disk(variant, job.from_journal_path(named))


def metadata_in(directory: Path) -> CheckpointMetadata:
    """Read what a snapshot says of itself."""
    path = directory / "_metadata"
    return decode_metadata(path.read_bytes(), str(path))


def checkpoint_files(variant: Variant, named: str) -> list[Path]:
    """The files of a checkpoint that the journal names, its metadata first."""
    path = located(variant, named)
    shared = on_disk(variant, job_dir(variant).shared)
    state = [shared / name for name in files_of(metadata_in(path))]
    return [path / "_metadata", *in_flight_files(variant, named), *state]


def in_flight_files(variant: Variant, named: str) -> list[Path]:
    """Those of them that hold records which were on their way."""
    path = located(variant, named)
    files = [
        path / in_flight_file(operator.uid, state, segment)
        for operator in metadata_in(path).operators
        for state in operator.in_flight
        for entry in state.entries
        for segment in entry
    ]
    if variant.in_store:
        # All segments of a channel are one object there.
        return sorted({file.parent.with_name(f"{file.parent.name}.segments") for file in files})
    return files


def records_in_flight(variant: Variant, named: str) -> int:
    """How many records a checkpoint holds that were on their way."""
    return sum(
        segment.rows
        for operator in metadata_in(located(variant, named)).operators
        for state in operator.in_flight
        for entry in state.entries
        for segment in entry
    )


def check_savepoints(variant: Variant) -> None:
    """Every savepoint there is, is complete; every one the journal knows, is there."""
    known = {located(variant, c.path) for c in journal_of(variant).completed if c.savepoint}
    if "CLAIM" in variant.settings.values():
        # It goes with the first checkpoint.
        known.discard(located(variant, variant.restore or ""))
    found = set(on_disk(variant, variant.savepoints).glob("savepoint-*/_metadata"))
    assert known <= {path.parent for path in found}, f"{known} should be in {found}"
    for path in found:
        for operator in metadata_in(path.parent).operators:
            assert not operator.in_flight, f"{path} holds records in flight"
            verify_files(path.parent, operator.savepoint)
