"""Segment files on their way into a checkpoint and back; proven at every step.

They are copied, never linked: damage to the file that a stage reads must not be damage to the
checkpoint that could make it good.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from penstock.channel.segment import Segment
from penstock.connectors.durable import make_directory, sync_directory
from penstock.errors import CorruptSegmentError, CorruptStateError

_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """One file to be copied."""

    segment: Segment
    source: Path
    target: Path


def keep_segments(copies: Iterable[SegmentCopy]) -> None:
    """Copy segments into a checkpoint, to stay there whatever happens, and read them back.

    Called in the asynchronous phase, for files nobody deletes meanwhile.

    Raises:
        CorruptSegmentError: a segment is not what its producer wrote.
        CorruptStateError: a copy does not read back as it was written.
    """
    todo = list(copies)
    directories = sorted({copy.target.parent for copy in todo})
    for directory in directories:
        make_directory(directory)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(_keep, todo))
    for directory in directories:
        sync_directory(directory)


def bring_back(copies: Iterable[SegmentCopy]) -> None:
    """Copy segments out of a checkpoint to where the tasks of a new attempt read them.

    Raises:
        CorruptStateError: a file of the checkpoint is missing or damaged.
    """
    todo = list(copies)
    for directory in {copy.target.parent for copy in todo}:
        directory.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(_bring_back, todo))


def prove_segment(path: Path, segment: Segment) -> None:
    """Read a file of a checkpoint and check that it is the one that was written.

    Raises:
        CorruptStateError: it is missing or damaged.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CorruptStateError(str(path), "it is missing") from None
    for reason in damage(data, segment):
        raise CorruptStateError(str(path), reason)


def damage(data: bytes, segment: Segment) -> Iterable[str]:
    """Say what is wrong with the content of a segment file, if anything."""
    if len(data) != segment.size:
        yield f"{len(data)} bytes where {segment.size} are needed"
        return
    whole = memoryview(data)
    for part in (part for parts in segment.slices for part in parts):
        if crc32(whole[part.offset : part.offset + part.length]) != part.crc:
            yield f"checksum differs at byte {part.offset}"


def _keep(copy: SegmentCopy) -> None:
    try:
        data = copy.source.read_bytes()
    except OSError as error:
        raise CorruptSegmentError(str(copy.source), str(error)) from error
    for reason in damage(data, copy.segment):
        raise CorruptSegmentError(str(copy.source), reason)
    with copy.target.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    prove_segment(copy.target, copy.segment)


def _bring_back(copy: SegmentCopy) -> None:
    try:
        data = copy.source.read_bytes()
    except FileNotFoundError:
        raise CorruptStateError(str(copy.source), "it is missing") from None
    for reason in damage(data, copy.segment):
        raise CorruptStateError(str(copy.source), reason)
    copy.target.write_bytes(data)
