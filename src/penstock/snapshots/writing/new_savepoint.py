"""The directory of a savepoint that is written from rows; its metadata is written last."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.checkpoint.storage.metadata import (
    JOB_DIRECTORY,
    JOB_INSTANCE,
    LINEAGE,
    CheckpointMetadata,
    OperatorSnapshot,
    SubtaskStats,
)
from penstock.checkpoint.storage.metadata_serializer import encode_metadata
from penstock.checkpoint.storage.origins import Origin, origins_property
from penstock.common.storage_url import Location
from penstock.crash_points import CrashPoint, reach
from penstock.errors import (
    CorruptMetadataError,
    SavepointBeingWrittenError,
    SavepointExistsError,
)
from penstock.savepoint.layout import METADATA
from penstock.savepoint.read import verify_files
from penstock.savepoint.write import finalize_files
from penstock.snapshots.writing.base_snapshot import BaseSnapshot
from penstock.state.savepoint_file import SavepointFile
from penstock.storage.durable_files import make_directory
from penstock.storage.storages import storage_at
from penstock.version import __version__

_FIRST = 1
"""The checkpoint id of a savepoint that no job has taken."""


@contextlib.contextmanager
def writing_to(savepoint: Location) -> Iterator[None]:
    """Prepare a directory, and keep other processes on this host from writing to it.

    Raises:
        SavepointExistsError: there is a savepoint.
        SavepointBeingWrittenError: another process is writing one.
    """
    check_absent(savepoint)
    if not isinstance(savepoint, Path):
        yield  # files in a store have unique names, and one of two writers creates the metadata
        return
    make_directory(savepoint)
    lock = os.open(savepoint, os.O_RDONLY)
    try:
        # Released when the process ends, however it ends.
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SavepointBeingWrittenError(str(savepoint)) from None
        check_absent(savepoint)
        yield
    finally:
        os.close(lock)


def check_absent(savepoint: Location) -> None:
    """Raise an error if there is a savepoint.

    Raises:
        SavepointExistsError: there is one.
    """
    if storage_at(savepoint).exists(METADATA):
        raise SavepointExistsError(str(savepoint))


def finished_files(savepoint: Location, files: Sequence[SavepointFile]) -> list[SavepointFile]:
    """Give files their final names, and read them back.

    Raises:
        CorruptStateError: one is not as it was written.
    """
    final = finalize_files(savepoint, files)
    if isinstance(savepoint, Path):
        verify_files(savepoint, final)  # those in a store were read back by the tasks
    reach(CrashPoint.SAVEPOINT_WRITTEN)
    return final


def remove_files(savepoint: Location, files: Sequence[SavepointFile]) -> None:
    """Remove files of a savepoint that is not completed."""
    with contextlib.suppress(OSError):
        storage_at(savepoint).delete_all(file.path for file in files)


def complete(
    savepoint: Location,
    operators: list[OperatorSnapshot],
    base: BaseSnapshot | None,
    origins: Sequence[Origin],
) -> CheckpointMetadata:
    """Write the metadata and read it back: from then on there is a savepoint.

    Raises:
        SavepointExistsError: another process was faster.
    """
    now = time.time()
    if base is None:
        job_id = attempt = "bootstrap"
        name, checkpoint = job_id, _FIRST
        # That of no job, so that none takes the savepoint for its own.
        properties = {JOB_INSTANCE: f"bootstrap-{uuid.uuid4().hex}", LINEAGE: attempt}
    else:
        known = base.metadata
        job_id, name, attempt = known.job_id, known.job_name, known.attempt
        checkpoint, properties = known.checkpoint, dict(known.properties)
        if base.job_directory:
            properties[JOB_DIRECTORY] = base.job_directory
    metadata = CheckpointMetadata(
        job_id=job_id,
        job_name=name,
        attempt=attempt,
        checkpoint=checkpoint,
        kind="savepoint",
        triggered=now,
        completed=now,
        penstock_version=__version__,
        operators=operators,
        properties={**properties, **origins_property(origins)},
    )
    data, storage = encode_metadata(metadata), storage_at(savepoint)
    try:
        storage.create(METADATA, data)
    except FileExistsError:
        raise SavepointExistsError(str(savepoint)) from None
    if storage.read(METADATA) != data:
        raise CorruptMetadataError(str(savepoint), "it does not read back as it was written")
    return metadata


def stats_of(files: Sequence[SavepointFile], parallelism: int) -> list[SubtaskStats]:
    """Return the sizes of the state of each subtask, as a job would record them."""
    sizes = [0] * parallelism
    for file in files:
        sizes[file.subtask] += file.size
    return [SubtaskStats(new_bytes=size, full_bytes=size) for size in sizes]
