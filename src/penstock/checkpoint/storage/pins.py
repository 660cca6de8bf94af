"""Pins of readers: a checkpoint that is being read is deleted when its readers are done.

A pin is a file in the job's directory, with a time at which it expires. The reader creates it first
and then looks whether the journal still lists the checkpoint. The driver discards a checkpoint in
the journal first and then looks for pins, before it deletes any file. So one of them sees the
other: either the reader finds that the checkpoint is discarded, or the driver finds the pin.

A reader that dies leaves a pin that expires. When the job ends, pins count no more.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.errors import DisappearedSnapshotError
from penstock.ids import CheckpointId
from penstock.storage.contract import Storage

logger = logging.getLogger("penstock.checkpoint")

PIN_SECONDS = 60.0
"""How long a pin lasts unless it is renewed."""
LONGEST_PIN_SECONDS = 3600.0
"""What expires later than this is no pin: a wrong clock must not keep files forever."""

_DIRECTORY = "pins"
_NAME = re.compile(r"[1-9][0-9]*-[0-9a-f]{32}\.json")


class _PinFile(msgspec.Struct, frozen=True):
    expires: float


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_PinFile).decode


class Pin:
    """A pin of one reader on one checkpoint; any thread may call."""

    def __init__(self, storage: Storage, name: str, clock: Callable[[], float] = time.time) -> None:
        """Use `pin_checkpoint`; or continue the pin of another process, which has this name."""
        self.name = name
        self._storage = storage
        self._path = f"{_DIRECTORY}/{name}"
        self._clock = clock
        self._lock = threading.Lock()
        self._is_released = False
        self._expires = 0.0

    def renew(self, seconds: float = PIN_SECONDS) -> None:
        """Let it last for some seconds from now; does nothing while most of that time is left."""
        with self._lock:
            now = self._clock()
            if self._is_released or self._expires - now > seconds / 2:
                return
            self._expires = now + min(seconds, LONGEST_PIN_SECONDS / 2)
            self._storage.replace(self._path, _encode(_PinFile(self._expires)))

    def release(self) -> None:
        """Remove it; may be repeated. What cannot be removed expires."""
        with self._lock:
            self._is_released = True
            with contextlib.suppress(OSError):
                self._storage.delete(self._path)


def pin_checkpoint(
    job: JobDir,
    checkpoint: int,
    seconds: float = PIN_SECONDS,
    clock: Callable[[], float] = time.time,
) -> Pin:
    """Pin a completed checkpoint of a job, so that its driver deletes no file of it.

    Raises:
        DisappearedSnapshotError: it is discarded, or was never completed.
        OSError: the reader may not write into the job's directory.
    """
    pin = Pin(job.storage, f"{checkpoint}-{uuid.uuid4().hex}.json", clock)
    pin.renew(seconds)
    try:
        state = Journal(job.storage, job.key).state()
        if state.find(checkpoint) is None and checkpoint not in state.named:
            raise DisappearedSnapshotError(str(job.checkpoint_dir(checkpoint)))
    except BaseException:
        pin.release()
        raise
    return pin


@contextmanager
def pinned(job: JobDir, checkpoint: int, clock: Callable[[], float] = time.time) -> Iterator[Pin]:
    """Pin a checkpoint for as long as the context lasts; who reads for long renews the pin.

    Raises:
        DisappearedSnapshotError: it is discarded, or was never completed.
    """
    pin = pin_checkpoint(job, checkpoint, PIN_SECONDS, clock)
    try:
        yield pin
    finally:
        pin.release()


class Pins:
    """The pins of a job, for its driver, after it has discarded checkpoints in the journal.

    A pin is read again when it would have expired: its reader may have renewed it.
    """

    def __init__(self, job: JobDir, clock: Callable[[], float] = time.time) -> None:
        self._storage = job.storage
        self._clock = clock
        self._expires: dict[str, float] = {}
        """By the names of pins."""

    def checkpoints(self) -> frozenset[CheckpointId]:
        """Return the checkpoints with a pin that has not expired; remove expired pins.

        Raises:
            OSError: pins cannot be read now.
        """
        now = self._clock()
        names = [name for name in self._storage.children(_DIRECTORY) if _NAME.fullmatch(name)]
        known = {name: self._expires.get(name, 0.0) for name in names}
        self._expires = {
            name: expires if expires > now else self._read(name) for name, expires in known.items()
        }
        expired = [
            name
            for name, expires in self._expires.items()
            if not now < expires <= now + LONGEST_PIN_SECONDS
        ]
        for name in expired:
            del self._expires[name]
        self._storage.delete_all(f"{_DIRECTORY}/{name}" for name in expired)
        return frozenset(CheckpointId(int(name.partition("-")[0])) for name in self._expires)

    def _read(self, name: str) -> float:
        try:
            return _decode(self._storage.read(f"{_DIRECTORY}/{name}")).expires
        except (FileNotFoundError, msgspec.DecodeError):
            return 0.0  # it was released, or is none
