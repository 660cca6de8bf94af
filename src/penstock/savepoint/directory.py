"""A savepoint as a directory of the user's: what is in it, and how to be rid of it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from penstock.checkpoint.job_dir import JobDir
from penstock.checkpoint.metadata import JOB_DIRECTORY, CheckpointMetadata
from penstock.checkpoint.metadata_codec import decode_metadata
from penstock.errors import CorruptMetadataError, NotASavepointError
from penstock.ids import JobKey
from penstock.savepoint.layout import METADATA, operator_dir

__all__ = ["dispose", "metadata_of"]

_KIND = "savepoint"


def metadata_of(path: Path) -> CheckpointMetadata:
    """Return what a savepoint says it holds; ``path`` is its directory or the metadata in it.

    Raises:
        NotASavepointError: if there is none, or if it cannot be read.
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
        found = f"it is a {meta.kind} of job {meta.job_name!r}, which looks after it itself"
        raise NotASavepointError(str(path), found)
    return meta


def dispose(path: Path, checkpoint_dir: Path | None = None) -> None:
    """Delete a savepoint, and nothing else: what others put beside it stays.

    The job it was taken of stops keeping what it needs. That job's directory is looked for where
    it was then, and in a checkpoint directory, if one is given; not finding it does no harm.

    The metadata goes last. After a crash in between, what is left is still known as a savepoint,
    no job starts from it because files are missing, and calling this again ends it.

    Raises:
        NotASavepointError: if there is none; nothing is deleted then.
    """
    meta = metadata_of(path)
    directory = _directory(path)
    _let_forget(meta, (directory / METADATA).read_bytes(), checkpoint_dir)
    for operator in meta.operators:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(directory / operator_dir(operator.uid))
    (directory / METADATA).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()


def _let_forget(meta: CheckpointMetadata, data: bytes, checkpoint_dir: Path | None) -> None:
    places = [Path(meta.properties[JOB_DIRECTORY])] if JOB_DIRECTORY in meta.properties else []
    places += [checkpoint_dir / meta.job_id] if checkpoint_dir is not None else []
    for place in places:
        copy = JobDir(place.parent, JobKey(place.name)).savepoint(meta.checkpoint)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            # Another job may have taken the place.
            if copy.read_bytes() == data:
                copy.unlink()


def _directory(path: Path) -> Path:
    return path.parent if path.name == METADATA else path
