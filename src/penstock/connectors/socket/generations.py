"""Generations of an ingestion log: which segments make up the log since it was last opened.

A driver may be suspended, replaced, and wake up again. So no driver writes into a segment that
another one has written: a driver that opens the log starts a new generation, and appends to
segments with its number in their names. The file of a generation names the segments before these,
and how many of their records count. What an older generation appends later is not part of the log.

The file of a generation is created only if absent, so of two drivers one comes first. It is locked
while its log is open. The lock keeps *other* jobs away; a later attempt of the same job does not
wait for it, because the driver that holds it may be suspended.
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

import msgspec

from penstock.errors import CorruptIngestionLogError, FencedError, LockedIngestionLogError
from penstock.ids import attempt_number
from penstock.storage.durable_files import give_final_name, sync_directory

_SUFFIX = ".segment"
_SEGMENT = re.compile(r"(\d{20})(?:\.(\d+))?\.segment")
_GENERATION = re.compile(r"generation-(\d{12})\.json")


class Owner(NamedTuple):
    """Who opens a log: an attempt of a job instance, which is empty if it is unknown."""

    job: str = ""
    job_instance: str = ""
    attempt: str = ""


class InheritedSegment(msgspec.Struct, frozen=True):
    """A segment of an older generation, and the records in it that belong to the log."""

    name: str
    first: int
    end: int


class Generation(msgspec.Struct, frozen=True):
    """What was in the log when a driver opened it."""

    job_instance: str = ""
    attempt: str = ""
    segments: list[InheritedSegment] = []
    end: int = 0
    """The number of the first record of this generation."""
    ended: bool = False


class _File(msgspec.Struct, frozen=True):
    generation: msgspec.Raw
    crc: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of a log; without an ``end`` it counts as far as it is complete."""

    path: Path
    first: int
    end: int | None


def newest(directory: Path) -> int:
    """Return the number of the newest generation; 0 if the log has none.

    Versions without generations wrote segments without a number, which are those of generation 0.
    """
    return max(_generations(directory), default=0)


def read(directory: Path, number: int) -> Generation:
    """Return what a generation has inherited."""
    if number == 0:
        return Generation()
    path = path_of(directory, number)
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
        if zlib.crc32(bytes(file.generation)) != file.crc:
            fail(path, 0, "the checksum of the list of segments is wrong")
        return msgspec.json.decode(file.generation, type=Generation)
    except msgspec.DecodeError as error:
        fail(path, 0, f"the list of segments is damaged: {error}")


def segments_of(directory: Path, number: int, inherited: Generation) -> list[Segment]:
    """Return the segments of a log as of one generation, in order; trimmed ones are left out."""
    for name in (s.name for s in inherited.segments if not _SEGMENT.fullmatch(s.name)):
        fail(path_of(directory, number), 0, f"{name!r} is not the name of a segment")
    old = [Segment(directory / s.name, s.first, s.end) for s in inherited.segments]
    own = sorted(found for found in _segments(directory) if found[1] == number)
    # A segment ends where the next one begins.
    ends = [*(first for first, _, _ in own[1:]), None]
    new = [Segment(path, first, end) for (first, _, path), end in zip(own, ends, strict=False)]
    found = [*old, *new]
    while found and not found[0].path.exists():
        found.pop(0)
    return found


def segment_path(directory: Path, first: int, number: int) -> Path:
    """Return the path of a segment that a generation creates."""
    return directory / f"{first:020d}.{number}{_SUFFIX}"


def path_of(directory: Path, number: int) -> Path:
    """Return the path of a generation's file."""
    return directory / f"generation-{number:012d}.json"


def number_of(path: Path) -> int:
    """Return the number of a generation from the path of its file."""
    match = _GENERATION.fullmatch(path.name)
    assert match is not None, path
    return int(match[1])


def check_may_follow(directory: Path, number: int, owner: Owner) -> None:
    """Check that a driver may start a generation after this one.

    Raises:
        LockedIngestionLogError: another job has the log open.
        FencedError: a later attempt of the same job has opened the log.
    """
    if number == 0:
        return
    last = read(directory, number)
    if owner.job_instance and last.job_instance == owner.job_instance:
        if (attempt_number(last.attempt) or 0) > (attempt_number(owner.attempt) or 0):
            raise FencedError(owner.job, owner.attempt, last.attempt)
        return
    with path_of(directory, number).open("rb") as file:
        _lock(file, directory)


def create(directory: Path, number: int, generation: Generation) -> BinaryIO | None:
    """Create a generation; None if another driver was faster. The result holds the lock."""
    raw = msgspec.json.encode(generation)
    hidden = directory / f".generation-{uuid.uuid4().hex}"
    file = hidden.open("x+b")
    try:
        file.write(msgspec.json.encode(_File(msgspec.Raw(raw), zlib.crc32(raw))))
        file.flush()
        os.fsync(file.fileno())
        # Locked before any other driver can see it.
        _lock(file, directory)
        path = path_of(directory, number)
        give_final_name(hidden, path)
        sync_directory(directory)
        # A number that was used before and removed is free again, but no longer the newest.
        if newest(directory) == number:
            return file
        path.unlink(missing_ok=True)
    except FileExistsError:
        pass
    except BaseException:
        file.close()
        raise
    finally:
        hidden.unlink(missing_ok=True)
    file.close()
    return None


def remove_older(directory: Path, number: int, generation: Generation) -> None:
    """Remove older generations, and what they have that a generation did not inherit."""
    kept = {segment.name for segment in generation.segments}
    for _, of, path in _segments(directory):
        if of < number and path.name not in kept:
            path.unlink(missing_ok=True)
    for older in _generations(directory):
        if older < number:
            path_of(directory, older).unlink(missing_ok=True)


def fail(path: Path, offset: int, reason: str) -> NoReturn:
    """Raise `CorruptIngestionLogError`."""
    raise CorruptIngestionLogError(str(path), offset, reason)


def _generations(directory: Path) -> list[int]:
    found = (_GENERATION.fullmatch(path.name) for path in directory.glob("generation-*"))
    return [int(match[1]) for match in found if match]


def _segments(directory: Path) -> list[tuple[int, int, Path]]:
    """Return the first record, the generation and the path of every segment file."""
    paths = directory.glob(f"*{_SUFFIX}")
    found = ((_SEGMENT.fullmatch(path.name), path) for path in paths)
    return [(int(m[1]), int(m[2] or 0), path) for m, path in found if m]


def _lock(file: BinaryIO, directory: Path) -> None:
    """Take a lock, which the kernel releases when the file is closed or its process ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise LockedIngestionLogError(str(directory)) from None
