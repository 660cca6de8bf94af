"""Records next to a savepoint that its output is committed, and finds such records.

The journal of the job that took a snapshot says whether sinks have committed what it holds. A
savepoint may be moved to where that journal is not, so a job that stops writes a marker beside the
metadata, after the journal entry. A crash in between leaves the journal alone to say so; without
both, the output is committed again, which changes nothing as long as the output is in its place.
"""

from __future__ import annotations

import contextlib

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
) -> int:
    """Return up to which checkpoint id the output in a snapshot is committed, 0 if unknown.

    That is in its marker or its job's journal. The checksum identifies the snapshot: ids and paths
    may be those of another job's.
    """
    if _is_marked(directory, metadata_crc):
        return metadata.checkpoint
    if metadata.kind != "savepoint":
        return _in_journal(directory.parent, metadata.checkpoint, metadata_crc)
    inherited = directory.options if isinstance(directory, StorageUrl) else {}
    options = {**inherited, **job_dir.options} or None
    places = {job_dir.path}
    if JOB_DIRECTORY in metadata.properties:
        places.add(below(job_dir.path, metadata.properties[JOB_DIRECTORY], options))
    found = [_in_journal(place, metadata.checkpoint, metadata_crc) for place in places]
    # What is pending in a changed copy of a snapshot may be committed by the job of the original.
    for origin in origins_of(metadata):
        if origin.crc and origin.checkpoint == metadata.checkpoint:
            original = below(directory, origin.path, options)
            if _is_marked(original, origin.crc):
                return metadata.checkpoint
            found += [_in_journal(place, origin.checkpoint, origin.crc) for place in places]
    return max(found)


def _is_marked(directory: Location, metadata_crc: int) -> bool:
    with contextlib.suppress(OSError):
        return storage_at(directory).read(COMMITTED) == _marker(metadata_crc)
    return False


def _in_journal(job_directory: Location, checkpoint: int, metadata_crc: int) -> int:
    job = JobDir(job_directory.parent, JobKey(job_directory.name))
    try:
        state = Journal(job.storage, job.key).state()
    except (OSError, PenstockError):
        return 0  # nothing is known
    found = state.find(checkpoint)
    if found is None or found.metadata_crc != metadata_crc:
        return 0
    return state.committed_upto(found.attempt)


def _marker(metadata_crc: int) -> bytes:
    return f"{metadata_crc:08x}\n".encode()
