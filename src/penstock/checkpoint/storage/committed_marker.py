"""Records next to a savepoint that its output is committed, and finds such records.

The journal of the job that took a snapshot says whether sinks have committed what it holds. A
savepoint may be moved to where that journal is not, so a job that stops writes a marker beside the
metadata, after the journal entry. A crash in between leaves the journal alone to say so; without
both, the output is committed again, which changes nothing as long as the output is in its place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import reduce

from penstock.checkpoint.storage.committed_output import CommittedOutput
from penstock.checkpoint.storage.job_dir import METADATA, JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.metadata import JOB_DIRECTORY, CheckpointMetadata
from penstock.checkpoint.storage.origins import origins_of
from penstock.common.config.locations import below
from penstock.common.storage_url import Location, StorageUrl
from penstock.errors import PenstockError
from penstock.ids import JobKey
from penstock.storage.storages import storage_at

COMMITTED = "_committed"


def mark_committed(directory: Location, metadata_crc: int) -> None:
    """Write the marker of a savepoint, unless the savepoint is no longer there."""
    storage = storage_at(directory)
    if storage.exists(METADATA):
        storage.replace(COMMITTED, _marker(metadata_crc))


def recorded_as_committed(
    job_dir: JobDir, directory: Location, metadata: CheckpointMetadata, metadata_crc: int
) -> CommittedOutput:
    """Return what is recorded as committed of the output in a snapshot that is not `job_dir`'s own.

    That is in its marker, in its job's journal, or in that of `job_dir`, which may have been
    started from it. The checksum identifies the snapshot: ids and paths may be those of another
    job's.
    """
    if _is_marked(directory, metadata_crc):
        return CommittedOutput(metadata.checkpoint)
    places = {job_dir.path}
    if metadata.kind != "savepoint":
        places.add(directory.parent)
        return _in_journals(places, metadata.checkpoint, metadata_crc)
    inherited = directory.options if isinstance(directory, StorageUrl) else {}
    options = {**inherited, **job_dir.options} or None
    if JOB_DIRECTORY in metadata.properties:
        places.add(below(job_dir.path, metadata.properties[JOB_DIRECTORY], options))
    found = _in_journals(places, metadata.checkpoint, metadata_crc)
    # What is pending in a changed copy of a snapshot may be committed by the job of the original,
    # or by one that was started from the original.
    for origin in origins_of(metadata):
        if origin.crc and origin.checkpoint == metadata.checkpoint:
            original = below(directory, origin.path, options)
            if _is_marked(original, origin.crc):
                return CommittedOutput(metadata.checkpoint)
            found = found.merged(_in_journals(places, origin.checkpoint, origin.crc))
    return found


def _is_marked(directory: Location, metadata_crc: int) -> bool:
    with contextlib.suppress(OSError):
        return storage_at(directory).read(COMMITTED) == _marker(metadata_crc)
    return False


def _in_journals(
    job_directories: Iterable[Location], checkpoint: int, metadata_crc: int
) -> CommittedOutput:
    found = (_in_journal(place, checkpoint, metadata_crc) for place in job_directories)
    return reduce(CommittedOutput.merged, found, CommittedOutput())


def _in_journal(job_directory: Location, checkpoint: int, metadata_crc: int) -> CommittedOutput:
    job = JobDir(job_directory.parent, JobKey(job_directory.name))
    try:
        state = Journal(job.storage, job.key).state()
    except (OSError, PenstockError):
        return CommittedOutput()  # nothing is known
    by_later_start = state.committed_foreign(checkpoint, metadata_crc)
    found = state.find(checkpoint)
    if found is None or found.metadata_crc != metadata_crc:
        return by_later_start
    return state.committed_output(found.attempt).merged(by_later_start)


def _marker(metadata_crc: int) -> bytes:
    return f"{metadata_crc:08x}\n".encode()
