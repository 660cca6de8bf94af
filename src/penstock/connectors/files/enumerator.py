"""Enumerator of a file source: lists files and divides them into ranges of bytes."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.common.config.locations import STORE_SCHEMES, scheme_of
from penstock.common.storage_url import Location, StorageUrl
from penstock.connectors.contracts import source
from penstock.connectors.contracts.input_settings import DEFAULT_INPUT_SETTINGS, InputSettings
from penstock.connectors.files.finished_files import ENTRY_BYTES, FinishedFiles
from penstock.connectors.files.listing import Listing, list_files
from penstock.connectors.formats.input_file import FileIdentity, InputFile, input_place
from penstock.connectors.formats.reader_format import ReaderFormat
from penstock.connectors.formats.stored_input import stored_file
from penstock.errors import ChangedFileError, MissingPathError

_log = logging.getLogger(__name__)

# A smaller range costs more to plan than to read.
_MIN_SPLIT_BYTES = 64 * 1024
_GUESSED_BYTES_PER_RECORD = 64.0
# The rest of a file is added to a micro-batch if it is at most this fraction of it: on its own, it
# would cost as much as a full micro-batch.
_REST_FRACTION = 8


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files a source reads: where, in which format, and how often to look for new ones."""

    roots: tuple[Location, ...]
    reader_format: ReaderFormat
    splits_files: bool = True
    discovery_interval: float | None = None
    settings: InputSettings = DEFAULT_INPUT_SETTINGS

    def is_splittable(self, path: str) -> bool:
        """Whether a file may be read in several ranges."""
        return self.splits_files and self.reader_format.splittable(Path(path))

    def open(self, path: str, identity: FileIdentity | None = None) -> InputFile:
        """Open a file, as `InputFile` does."""
        return InputFile(self.place(path), identity, self.settings)

    def place(self, path: str) -> Location:
        """Return where a file is, with what reaches it."""
        return input_place(path, self.settings.storage_options)

    def listed(self) -> Listing:
        """Return the files that there are now."""
        options = self.settings.storage_options
        return list_files(
            root.with_options(options) if isinstance(root, StorageUrl) else root
            for root in self.roots
        )


@dataclass(slots=True)
class _File:
    path: str
    next: int
    splittable: bool
    size: int = 0
    identity: FileIdentity | None = None
    """Known once its first range is planned: until then it may change."""
    block_starts: Sequence[int] | None = None


class EnumeratorState(msgspec.Struct, frozen=True):
    """What a checkpoint holds in addition to the positions of unfinished files."""

    snapshot: int
    """The number of the snapshot in its attempt."""
    finished: bytes
    """Of finished files, as `FinishedFiles` encodes them."""
    begun: dict[str, tuple[int, ...]]
    """Size and modification time (in nanoseconds) of the files that are partly read.

    For files in a store, if that has versions, also a digest of the version.
    """
    roots: tuple[tuple[int, int], ...]
    """Device and inode of the source's paths."""


_decode_state = msgspec.msgpack.Decoder(EnumeratorState).decode


def count_finished_files(positions: Mapping[str, int], state: bytes) -> int:
    """Return how many finished files a snapshot of a source holds; 0 for other sources."""
    with_position = sum(1 for position in positions.values() if position < 0)
    try:
        return max(with_position, len(_decode_state(state).finished) // ENTRY_BYTES)
    except msgspec.DecodeError:
        return with_position


MAX_BYTES = 256 << 20
"""Maximum that one subtask reads in one micro-batch, however long the records are."""


class FileEnumerator(source.SourceEnumerator):
    """Plans files in the order of their paths, one after the other.

    A position is the next byte of a file. Finished files have none, they are in `EnumeratorState`;
    only if positions have to be complete (at-most-once, and checkpoints of penstock 0.1.0), their
    position is the complement ``~size`` of their size, a negative number.

    A file must not change from its first range to its last. Its size, modification time and inode
    go with every range to the task that reads it. A checkpoint holds size and modification time,
    but no inode: a restored job may find a copy of the directory.
    """

    def __init__(self, files: FileSet, context: source.EnumeratorContext) -> None:
        self._files = files
        self._parallelism = context.parallelism
        self._monotonic = context.monotonic
        self._has_complete_positions = context.complete_positions
        self._positions: dict[str, int] = {}
        """Of unfinished files."""
        self._begun: dict[str, FileIdentity] = {}
        self._finished = FinishedFiles(checkpointed=context.checkpointed)
        self._roots: tuple[tuple[int, int], ...] = ()
        self._restored: EnumeratorState | None = None
        self._waiting: deque[_File] = deque()
        self._discovered_at = 0.0
        self._bytes_per_record: float | None = None

    def restore_state(self, state: bytes) -> None:
        self._restored = _decode_state(state)
        self._finished.restore(self._restored.finished)

    def start(self, positions: Mapping[str, int]) -> None:
        listing = self._files.listed()
        self._discovered_at = self._monotonic()
        restored = self._restored
        if listing.empty and not (self._is_continuous or restored or positions):
            raise MissingPathError(listing.empty[0])
        self._roots = listing.roots if restored is None else restored.roots
        for path, position in positions.items():
            if position < 0:
                self._finished.restore_path(path)
            elif path in listing.files:
                self._resume(path, position, listing.files[path])
            else:
                raise MissingPathError(path)
        self._compare(listing)
        if self._is_continuous or (restored is None and not positions):
            self._add_new(listing)

    def plan(self, max_records: int) -> source.ReadPlan:
        if self._discovery_due() == 0.0:
            self._discovered_at = self._monotonic()
            listing = self._files.listed()
            if self._compare(listing):
                self._finished.forget_unseen()
            self._add_new(listing)
        wanted = min(int(max_records * self._estimate()), MAX_BYTES * self._parallelism)
        pieces = self._next_ranges(max(1, wanted))
        return spread(pieces, self._parallelism) if pieces else []

    def positions(self) -> dict[str, int]:
        if self._has_complete_positions:
            return self._finished.positions() | self._positions
        return dict(self._positions)

    def snapshot_state(self) -> bytes:
        begun = {path: _facts(path, found) for path, found in self._begun.items()}
        number, finished = self._finished.snapshots, self._finished.encode()
        return msgspec.msgpack.encode(EnumeratorState(number, finished, begun, self._roots))

    def notify_state_complete(self, state: bytes) -> None:
        self._finished.complete(_decode_state(state).snapshot)

    def finished(self) -> bool:
        return not self._is_continuous and not self._waiting

    def is_finished(self, split: str) -> bool:
        return split not in self._positions

    def observe(self, records: int, ranges: Sequence[source.SplitRange]) -> None:
        size = sum(part.end - part.start for part in ranges)
        # No record starts in these ranges: records are longer than estimated.
        seen = size / records if records else 2 * self._estimate()
        self._bytes_per_record = (self._estimate() + seen) / 2

    def next_poll(self) -> float | None:
        return 0.0 if self._waiting else self._discovery_due()

    @property
    def _is_continuous(self) -> bool:
        return self._files.discovery_interval is not None

    def _discovery_due(self) -> float | None:
        interval = self._files.discovery_interval
        if interval is None:
            return None
        return max(0.0, self._discovered_at + interval - self._monotonic())

    def _compare(self, listing: Listing) -> bool:
        """Compare the finished files with a listing, and forget those that were removed.

        Nothing is forgotten, and False returned, while the listing is one of other directories than
        before: an unmounted file system looks like an empty directory. Once a finished file is
        found there, these directories count.
        """
        is_same_place = listing.roots == self._roots
        read = {p: found for p, found in listing.files.items() if p not in self._positions}
        if self._finished.update(read, forgets=is_same_place):
            self._roots = listing.roots
        return is_same_place

    def _add_new(self, listing: Listing) -> None:
        for path, found in listing.files.items():
            if path not in self._positions and path not in self._finished:
                if found.size:
                    self._add(path)
                else:
                    self._finished.add(path, found)

    def _add(self, path: str) -> _File:
        file = _File(path, 0, self._files.is_splittable(path))
        self._positions[path] = 0
        self._waiting.append(file)
        return file

    def _resume(self, path: str, position: int, found: FileIdentity) -> None:
        """Continue with a file of a restored checkpoint."""
        file = self._add(path)
        if position == 0:
            return
        change = "" if position < found.size else f"it has {found.size} bytes, {position} were read"
        if self._restored is not None and path in self._restored.begun:
            change = _difference(self._restored.begun[path], found)
        if change and not self._files.settings.accepts_changed_files:
            raise ChangedFileError(path, change)
        if change:
            _log.warning("File %s changed (%s): reading continues at %d", path, change, position)
        file.next = self._positions[path] = min(position, found.size)
        self._set_identity(file, found)

    def _set_identity(self, file: _File, found: FileIdentity) -> None:
        file.identity, file.size = found, found.size
        self._begun[file.path] = found

    def _next_ranges(self, budget: int) -> list[tuple[source.SplitRange, bool]]:
        pieces: list[tuple[source.SplitRange, bool]] = []
        rest = budget // _REST_FRACTION
        while budget > 0 and self._waiting:
            file = self._waiting[0]
            if file.identity is None:
                self._set_identity(file, _identify(self._files.place(file.path)))
            if file.next < file.size:
                end = self._range_end(file, budget, rest)
                pieces.append((self._range(file, end), file.splittable))
                budget -= end - file.next
                file.next = self._positions[file.path] = end
            if file.next >= file.size:
                del self._positions[file.path]
                self._finished.add(file.path, self._begun.pop(file.path))
                self._waiting.popleft()
        return pieces

    def _range(self, file: _File, end: int) -> source.SplitRange:
        identity = None if self._files.settings.accepts_changed_files else file.identity
        return source.SplitRange(file.path, file.next, end, identity)

    def _range_end(self, file: _File, budget: int, rest: int) -> int:
        wanted = file.next + budget
        if not file.splittable or wanted + rest >= file.size:
            return file.size
        if file.block_starts is None:
            with self._files.open(file.path) as opened:
                starts = self._files.reader_format.block_starts(opened)
            if starts is None:
                return wanted
            file.block_starts = starts
        following = bisect_left(file.block_starts, wanted)
        return file.block_starts[following] if following < len(file.block_starts) else file.size

    def _estimate(self) -> float:
        if self._bytes_per_record is None:
            splittable = (file.path for file in self._waiting if file.splittable)
            sample = next(splittable, None)
            if sample is None:
                return _GUESSED_BYTES_PER_RECORD
            with self._files.open(sample) as opened:
                self._bytes_per_record = self._files.reader_format.bytes_per_record(opened)
        return self._bytes_per_record


def _facts(path: str, found: FileIdentity) -> tuple[int, ...]:
    is_version = found.inode and scheme_of(path) in STORE_SCHEMES
    facts = (found.size, found.mtime_ns)
    return (*facts, found.inode) if is_version else facts


def _difference(begun: tuple[int, ...], found: FileIdentity) -> str:
    """Say how a file differs from the one that a checkpoint describes; empty if it does not."""
    size, mtime_ns, *version = begun
    if version:
        # The content is the same in a copy of the bucket, too, whose times are others.
        return FileIdentity(version[0], size, found.mtime_ns).difference(found)
    return FileIdentity(found.inode, size, mtime_ns).difference_of_copy(found)


def _identify(place: Location) -> FileIdentity:
    if isinstance(place, StorageUrl):
        stored = stored_file(place)
        if stored is None:
            raise MissingPathError(str(place))
        return FileIdentity.of_stored(stored)
    try:
        return FileIdentity.of(place.stat())
    except FileNotFoundError:
        raise MissingPathError(str(place)) from None


def spread(pieces: Sequence[tuple[source.SplitRange, bool]], parallelism: int) -> source.ReadPlan:
    """Divide ranges of files evenly among the subtasks, in order.

    Ranges that are small or not splittable (the flag) stay whole, and go to the subtask of their
    middle.
    """
    total = sum(part.end - part.start for part, _ in pieces)
    cuts = [total * subtask // parallelism for subtask in range(parallelism + 1)]
    plan: source.ReadPlan = [[] for _ in range(parallelism)]
    done = 0
    for part, splittable in pieces:
        length = part.end - part.start
        if not splittable or length <= _MIN_SPLIT_BYTES:
            plan[(2 * done + length) * parallelism // (2 * total)].append(part)
        else:
            shift = part.start - done
            for subtask in range(parallelism):
                low = max(part.start, cuts[subtask] + shift)
                high = min(part.end, cuts[subtask + 1] + shift)
                if low < high:
                    plan[subtask].append(msgspec.structs.replace(part, start=low, end=high))
        done += length
    return plan
