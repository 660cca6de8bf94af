"""The snapshot that a new savepoint is made from."""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from penstock.checkpoint.storage.committed_marker import recorded_as_committed
from penstock.checkpoint.storage.committed_output import CommittedOutput
from penstock.checkpoint.storage.job_dir import METADATA, JobDir
from penstock.checkpoint.storage.metadata import (
    JOB_DIRECTORY,
    CheckpointMetadata,
    OperatorSnapshot,
    SinkState,
)
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.checkpoint.storage.origins import Origin, origins_of
from penstock.checkpoint.storage.pins import PIN_SECONDS, Pin
from penstock.common.config.locations import below
from penstock.common.storage_url import Location, StorageUrl
from penstock.errors import InFlightDataError
from penstock.ids import JobKey
from penstock.snapshots.reading import PinnedSnapshot, open_pinned
from penstock.snapshots.stored_snapshot import StoredSnapshot
from penstock.storage.storages import storage_at


@dataclass(frozen=True)
class BaseSnapshot:
    """A snapshot, pinned until `release`, and what is known about its output."""

    pinned: PinnedSnapshot
    crc: int
    """The checksum of its metadata."""
    job_directory: str
    """The directory of its job, empty if unknown."""
    committed: CommittedOutput
    """What is recorded as committed of the output that it holds."""
    released: threading.Event
    """Set when it is not read any more."""

    @property
    def stored(self) -> StoredSnapshot:
        """The snapshot."""
        return self.pinned.snapshot

    @property
    def metadata(self) -> CheckpointMetadata:
        """Its metadata."""
        return self.pinned.snapshot.metadata

    def pending_output(self, operator: OperatorSnapshot) -> SinkState | None:
        """Return what a sink has still to commit, and its unfinished output.

        What is recorded as committed is left out: consumers may have moved it away.
        """
        if operator.sink is None:
            return None
        return replace(operator.sink, committables=self.committed.pending(operator))

    def origins(self, operations: Sequence[str]) -> list[Origin]:
        """Return the origins of a savepoint that is made of it with some operations."""
        metadata = self.metadata
        own = Origin(
            operations=list(operations),
            time=time.time(),
            path=str(self.stored.directory),
            kind=metadata.kind,
            checkpoint=metadata.checkpoint,
            crc=self.crc,
            job_directory=self.job_directory,
        )
        return [*origins_of(metadata), own]

    def release(self) -> None:
        """Let its job delete it again."""
        self.released.set()
        self.pinned.release()


def open_base(path: Location, checkpoint: int | None = None) -> BaseSnapshot:
    """Open a savepoint, a retained checkpoint, or the newest checkpoint of a job.

    Raises:
        NotASnapshotError: there is none.
        InFlightDataError: it has in-flight data.
    """
    pinned = open_pinned(path, checkpoint)
    try:
        return _opened(pinned)
    except BaseException:
        pinned.release()
        raise


def _opened(pinned: PinnedSnapshot) -> BaseSnapshot:
    directory, metadata = pinned.snapshot.directory, pinned.snapshot.metadata
    in_flight = tuple(f"{o.name!r}" for o in metadata.operators if o.in_flight)
    if in_flight:
        raise InFlightDataError(str(directory), in_flight)
    data = storage_at(directory).read(METADATA)
    assert decode_metadata(data, str(directory)) == metadata
    crc = zlib.crc32(data)
    if pinned.snapshot.is_savepoint:
        job_directory = metadata.properties.get(JOB_DIRECTORY, "")
        options = directory.options if isinstance(directory, StorageUrl) else None
        place = below(directory, job_directory, options) if job_directory else directory
    else:
        place, job_directory = directory.parent, str(directory.parent)
    job = JobDir(place.parent, JobKey(place.name))
    committed = recorded_as_committed(job, directory, metadata, crc)
    released = threading.Event()
    if pinned.pin is not None:
        keep = partial(_keep, pinned.pin, released)
        threading.Thread(target=keep, name="pin", daemon=True).start()
    return BaseSnapshot(pinned, crc, job_directory, committed, released)


def _keep(pin: Pin, released: threading.Event) -> None:
    """Renew a pin until the snapshot is released, or the process ends."""
    while not released.wait(PIN_SECONDS / 4):
        with contextlib.suppress(OSError):
            pin.renew()
