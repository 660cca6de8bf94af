"""Copies segment files of in-flight data into a checkpoint and back, verified at every step.

They are copied, never linked: damage to the file that a stage reads must not damage the checkpoint
that could repair it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from penstock.channel.segment import Segment
from penstock.common.new_files import create_file
from penstock.errors import CorruptSegmentError, CorruptStateError
from penstock.storage.durable_files import make_directory, sync_directory

_PARALLEL_COPIES = 4


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """One file to copy."""

    segment: Segment
    source: Path
    target: Path


def copy_into_checkpoint(copies: Iterable[SegmentCopy]) -> None:
    """Copy segments into a checkpoint so that they survive a loss of power, and read them back.

    Called in the asynchronous phase; the source files must not be deleted meanwhile.

    Raises:
        CorruptSegmentError: a segment is not what its producer wrote.
        CorruptStateError: a copy does not read back as it was written.
    """
    todo = list(copies)
    directories = sorted({copy.target.parent for copy in todo})
    for directory in directories:
        make_directory(directory)
    _copy_all(todo, _copy_in)
    for directory in directories:
        sync_directory(directory)


def copy_from_checkpoint(copies: Iterable[SegmentCopy]) -> None:
    """Copy segments out of a checkpoint to where the tasks of a new attempt read them.

    Raises:
        CorruptStateError: a file of the checkpoint is missing or damaged.
    """
    todo = list(copies)
    for directory in {copy.target.parent for copy in todo}:
        directory.mkdir(parents=True, exist_ok=True)
    _copy_all(todo, lambda copy: copy.target.write_bytes(_read(copy.source, copy.segment)))


def verify_segment(path: Path, segment: Segment) -> None:
    """Read a file of a checkpoint and check that it is what was written.

    Raises:
        CorruptStateError: it is missing or damaged.
    """
    _read(path, segment)


def _copy_all(copies: list[SegmentCopy], copy: Callable[[SegmentCopy], object]) -> None:
    with ThreadPoolExecutor(_PARALLEL_COPIES) as pool:
        list(pool.map(copy, copies))


def _copy_in(copy: SegmentCopy) -> None:
    try:
        data = _read(copy.source, copy.segment)
    except (OSError, CorruptStateError) as error:
        reason = error.reason if isinstance(error, CorruptStateError) else str(error)
        raise CorruptSegmentError(str(copy.source), reason) from error
    with create_file(copy.target) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    verify_segment(copy.target, copy.segment)


def _read(path: Path, segment: Segment) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CorruptStateError(str(path), "it is missing") from None
    if len(data) != segment.size:
        raise CorruptStateError(str(path), f"it has {len(data)} bytes instead of {segment.size}")
    whole = memoryview(data)
    for part in (part for parts in segment.slices for part in parts):
        if crc32(whole[part.offset : part.offset + part.length]) != part.crc:
            raise CorruptStateError(str(path), f"checksum differs at byte {part.offset}")
    return data
