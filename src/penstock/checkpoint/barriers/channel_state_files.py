"""Copies segment files of in-flight data into a checkpoint and back, verified at every step.

They are copied, never linked: damage to the file that a stage reads must not damage the checkpoint
that could repair it. In a directory a checkpoint has a file for each segment. In a store it has one
object for each channel, with all segments of that channel one after another: there every request
takes long, and many are slow and expensive.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, TypeVar
from zlib import crc32

from penstock.channel.segment import Segment
from penstock.checkpoint.storage.metadata import ChannelState, in_flight_file
from penstock.common.new_files import create_file
from penstock.common.storage_url import Location, StorageUrl
from penstock.errors import CorruptSegmentError, CorruptStateError
from penstock.storage.durable_files import make_directory, sync_directory
from penstock.storage.storages import storage_at
from penstock.storage.verified_files import check_size

_PARALLEL_COPIES = 4
_BUNDLE = ".segments"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """One segment to copy.

    The side of the checkpoint is the place of `in_flight_file`. If that is in a store, the segments
    of a channel must come in their order, and all of them.
    """

    segment: Segment
    source: Location
    target: Location


def copy_into_checkpoint(copies: Iterable[SegmentCopy]) -> None:
    """Copy segments into a checkpoint so that they survive a loss of power, and verify the copies.

    Called in the asynchronous phase; the source files must not be deleted meanwhile.

    Raises:
        CorruptSegmentError: a segment is not what its producer wrote.
        CorruptStateError: a copy does not read back as it was written.
    """
    files: list[tuple[Path, SegmentCopy]] = []
    bundles: dict[StorageUrl, list[SegmentCopy]] = {}
    for copy in copies:
        if isinstance(copy.target, StorageUrl):
            bundles.setdefault(_bundle_of(copy.target), []).append(copy)
        else:
            files.append((copy.target, copy))
    directories = sorted({target.parent for target, _ in files})
    for directory in directories:
        make_directory(directory)
    _in_parallel(files, lambda file: _copy_in(file[1], file[0]))
    for directory in directories:
        sync_directory(directory)
    _in_parallel(bundles.items(), lambda bundle: _upload(*bundle))


def copy_from_checkpoint(copies: Iterable[SegmentCopy]) -> None:
    """Copy segments out of a checkpoint to where the tasks of a new attempt read them.

    Raises:
        CorruptStateError: a file of the checkpoint is missing or damaged.
    """
    files: list[tuple[Path, SegmentCopy]] = []
    bundles: dict[StorageUrl, list[SegmentCopy]] = {}
    directories: set[Path] = set()
    for copy in copies:
        if isinstance(copy.target, Path):
            directories.add(copy.target.parent)
        if isinstance(copy.source, StorageUrl):
            bundles.setdefault(_bundle_of(copy.source), []).append(copy)
        else:
            files.append((copy.source, copy))
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
    _in_parallel(files, lambda file: _put(file[1].target, _read(file[0], file[1].segment)))
    _in_parallel(bundles.items(), lambda bundle: _download(*bundle))


def in_flight_checks(
    checkpoint: Location, operator_uid: str, states: Iterable[ChannelState]
) -> Iterator[Callable[[], None]]:
    """Yield a check for each file with in-flight data of an operator.

    A check raises `CorruptStateError` if the file is missing or damaged. They may run in parallel.
    """
    for state in states:
        segments = list(chain(*state.entries))
        if isinstance(checkpoint, Path):
            for segment in segments:
                file = checkpoint / in_flight_file(operator_uid, state, segment)
                yield partial(verify_segment, file, segment)
        elif segments:
            yield partial(_verify_bundle, checkpoint, operator_uid, state)


def read_in_flight(
    checkpoint: StorageUrl, operator_uid: str, state: ChannelState
) -> Iterator[tuple[Segment, bytes]]:
    """Yield all segments of a channel in a store, verified, one at a time.

    Raises:
        CorruptStateError: the object is missing or damaged.
    """
    segments = list(chain(*state.entries))
    if segments:
        bundle = _bundle_of(checkpoint / in_flight_file(operator_uid, state, segments[0]))
        yield from _segments_in(bundle, segments)


def verify_segment(path: Path, segment: Segment) -> None:
    """Read a file of a checkpoint and check that it is what was written.

    Raises:
        CorruptStateError: it is missing or damaged.
    """
    _read(path, segment)


def _verify_bundle(checkpoint: StorageUrl, operator_uid: str, state: ChannelState) -> None:
    for _ in read_in_flight(checkpoint, operator_uid, state):
        pass


def _in_parallel(todo: Iterable[T], function: Callable[[T], object]) -> None:
    with ThreadPoolExecutor(_PARALLEL_COPIES) as pool:
        list(pool.map(function, todo))


def _put(place: Location, data: bytes) -> None:
    """Write a segment to where tasks read it."""
    if isinstance(place, StorageUrl):
        storage_at(place.parent).write(place.name, [data])
    else:
        place.write_bytes(data)


def _copy_in(copy: SegmentCopy, target: Path) -> None:
    data = _read_produced(copy)
    with create_file(target) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    verify_segment(target, copy.segment)


def _read_produced(copy: SegmentCopy) -> bytes:
    try:
        return _read(copy.source, copy.segment)
    except (OSError, CorruptStateError) as error:
        reason = error.reason if isinstance(error, CorruptStateError) else str(error)
        raise CorruptSegmentError(str(copy.source), reason) from error


def _read(place: Location, segment: Segment) -> bytes:
    try:
        data = storage_at(place.parent).read(place.name)
    except FileNotFoundError:
        raise CorruptStateError(str(place), "it is missing") from None
    if len(data) != segment.size:
        raise CorruptStateError(str(place), f"it has {len(data)} bytes instead of {segment.size}")
    _check(place, data, segment)
    return data


def _check(place: Location, data: bytes, segment: Segment, start: int = 0) -> None:
    """Verify a segment; in its file it begins at `start`."""
    whole = memoryview(data)
    for part in (part for parts in segment.slices for part in parts):
        if crc32(whole[part.offset : part.offset + part.length]) != part.crc:
            raise CorruptStateError(str(place), f"checksum differs at byte {start + part.offset}")


# -- in a store ---------------------------------------------------------------------------------


def _bundle_of(file: StorageUrl) -> StorageUrl:
    """Return the object that has a segment, given the place of its file in a directory."""
    channel = file.parent
    return channel.parent / f"{channel.name}{_BUNDLE}"


def _upload(bundle: StorageUrl, copies: Sequence[SegmentCopy]) -> None:
    storage = storage_at(bundle.parent)
    storage.write(bundle.name, map(_read_produced, copies))
    # The store has verified what it received: reading it again would find nothing more.
    check_size(storage, bundle.name, sum(copy.segment.size for copy in copies))


def _download(bundle: StorageUrl, copies: Sequence[SegmentCopy]) -> None:
    found = _segments_in(bundle, [copy.segment for copy in copies])
    for copy, (_, data) in zip(copies, found, strict=True):
        _put(copy.target, data)


def _segments_in(
    bundle: StorageUrl, segments: Sequence[Segment]
) -> Iterator[tuple[Segment, bytes]]:
    try:
        with storage_at(bundle.parent).open(bundle.name) as file:
            yield from _parts_of(bundle, file, segments)
    except FileNotFoundError:
        raise CorruptStateError(str(bundle), "it is missing") from None


def _parts_of(
    bundle: StorageUrl, file: BinaryIO, segments: Sequence[Segment]
) -> Iterator[tuple[Segment, bytes]]:
    start = 0
    for segment in segments:
        data = file.read(segment.size)
        if len(data) != segment.size:
            wanted = sum(segment.size for segment in segments)
            reason = f"it has {start + len(data)} bytes instead of {wanted}"
            raise CorruptStateError(str(bundle), reason)
        _check(bundle, data, segment, start)
        yield segment, data
        start += segment.size
    if file.read(1):
        raise CorruptStateError(str(bundle), f"it has more than {start} bytes")
