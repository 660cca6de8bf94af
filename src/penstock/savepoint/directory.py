"""The directory of a savepoint: its metadata, and how to dispose of it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from penstock.checkpoint.storage.committed_marker import COMMITTED
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.metadata import JOB_DIRECTORY, CheckpointMetadata
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.errors import CorruptMetadataError, NotASavepointError
from penstock.ids import JobKey
from penstock.savepoint.layout import METADATA, operator_dir

_KIND = "savepoint"


def read_savepoint_metadata(path: Path) -> CheckpointMetadata:
    """Return the metadata of a savepoint; ``path`` is its directory or the metadata file in it.

    Raises:
        NotASavepointError: if there is none, or it cannot be read.
    """
    directory = _directory(path)
    try:
        data = (directory / METADATA).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        found = f"it has no {METADATA}" if directory.is_dir() else "there is no such directory"
        raise NotASavepointError(str(path), found) from None
    try:
        meta = decode_metadata(data, str(directory / METADATA))
    except CorruptMetadataError as error:
        raise NotASavepointError(str(path), str(error)) from error
    if meta.kind != _KIND:
        found = f"it is a {meta.kind} of job {meta.job_name!r}, which the job itself manages"
        raise NotASavepointError(str(path), found)
    return meta


def dispose(path: Path, checkpoint_dir: Path | None = None) -> None:
    """Delete a savepoint, and nothing else: other files in its directory stay.

    The job it was taken of stops retaining what the savepoint needs. That job's directory is looked
    for where it was then, and in ``checkpoint_dir``; it is no error if it does not exist.

    The metadata is deleted last. After a crash in between, the rest is still a savepoint, no job
    starts from it because files are missing, and calling this again completes it.

    Raises:
        NotASavepointError: if there is none; nothing is deleted then.
    """
    meta = read_savepoint_metadata(path)
    directory = _directory(path)
    _release_in_job(meta, (directory / METADATA).read_bytes(), checkpoint_dir)
    for operator in meta.operators:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(directory / operator_dir(operator.uid))
    (directory / COMMITTED).unlink(missing_ok=True)
    (directory / METADATA).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()


def _release_in_job(meta: CheckpointMetadata, data: bytes, checkpoint_dir: Path | None) -> None:
    directories = [Path(meta.properties[JOB_DIRECTORY])] if JOB_DIRECTORY in meta.properties else []
    directories += [checkpoint_dir / meta.job_id] if checkpoint_dir is not None else []
    for job_directory in directories:
        copy = JobDir(job_directory.parent, JobKey(job_directory.name)).savepoint(meta.checkpoint)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            # Another job may use the directory now.
            if copy.read_bytes() == data:
                copy.unlink()


def _directory(path: Path) -> Path:
    return path.parent if path.name == METADATA else path
