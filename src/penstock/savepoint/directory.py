"""The directory of a savepoint, or its place in a store: its metadata, and how to dispose of it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock.checkpoint.storage.committed_marker import COMMITTED
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.metadata import JOB_DIRECTORY, CheckpointMetadata
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.common.config.locations import HDFS, below
from penstock.common.storage_url import Location, StorageUrl
from penstock.errors import CorruptMetadataError, NotASavepointError
from penstock.ids import JobKey
from penstock.savepoint.layout import METADATA, operator_dir
from penstock.storage.storages import storage_at

_KIND = "savepoint"


def read_savepoint_metadata(path: Location) -> CheckpointMetadata:
    """Return the metadata of a savepoint; ``path`` is its directory or the metadata file in it.

    Raises:
        NotASavepointError: if there is none, or it cannot be read.
    """
    return _read(path)[0]


def _read(path: Location) -> tuple[CheckpointMetadata, bytes]:
    directory = _directory(path)
    try:
        data = storage_at(directory).read(METADATA)
    except (FileNotFoundError, NotADirectoryError):
        found = f"it has no {METADATA}"
        if isinstance(directory, Path) and not directory.is_dir():
            found = "there is no such directory"
        raise NotASavepointError(str(path), found) from None
    try:
        meta = decode_metadata(data, str(directory / METADATA))
    except CorruptMetadataError as error:
        raise NotASavepointError(str(path), str(error)) from error
    if meta.kind != _KIND:
        found = f"it is a {meta.kind} of job {meta.job_name!r}, which the job itself manages"
        raise NotASavepointError(str(path), found)
    return meta, data


def dispose(
    path: Location,
    checkpoint_dir: Location | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Delete a savepoint, and nothing else: other files in its directory stay.

    The job it was taken of stops retaining what the savepoint needs. That job's directory is looked
    for where it was then, and in ``checkpoint_dir``; it is no error if it does not exist. If it was
    in a store, that is reached with the options given, or those of the other places.

    The metadata is deleted last. After a crash in between, the rest is still a savepoint, no job
    starts from it because files are missing, and calling this again completes it.

    Raises:
        NotASavepointError: if there is none; nothing is deleted then.
    """
    meta, data = _read(path)
    directory = _directory(path)
    reach: dict[str, str] = {}
    for place in (directory, checkpoint_dir):
        reach |= place.options if isinstance(place, StorageUrl) else {}
    directories = [] if checkpoint_dir is None else [checkpoint_dir / meta.job_id]
    if JOB_DIRECTORY in meta.properties:
        reach |= options or {}
        directories.insert(0, below(directory, meta.properties[JOB_DIRECTORY], reach))
    _release_in_jobs(directories, meta.checkpoint, data)
    operators = {operator_dir(operator.uid) for operator in meta.operators}
    if isinstance(directory, StorageUrl):
        _delete_stored(directory, operators)
        return
    for operator in operators:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(directory / operator)
    (directory / COMMITTED).unlink(missing_ok=True)
    (directory / METADATA).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()


def _delete_stored(savepoint: StorageUrl, operators: set[str]) -> None:
    storage = storage_at(savepoint)
    names = set(storage.children(""))
    # Most operators have no files: what is not listed needs no request.
    for operator in sorted(names & operators):
        storage.delete_tree(operator)
    if COMMITTED in names:
        storage.delete(COMMITTED)
    storage.delete(METADATA)
    if savepoint.scheme == HDFS and not storage.children(""):
        storage.delete_tree("")  # object stores have no directories


def _release_in_jobs(directories: Iterable[Location], checkpoint: int, data: bytes) -> None:
    """Delete the copy of the metadata that the savepoint's job keeps."""
    for job_directory in directories:
        job = JobDir(job_directory.parent, JobKey(job_directory.name))
        copy = job.savepoint_copy(checkpoint)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            # Another job may use the directory now.
            if job.storage.read(copy) == data:
                job.storage.delete(copy)


def _directory(path: Location) -> Location:
    return path.parent if path.name == METADATA else path
