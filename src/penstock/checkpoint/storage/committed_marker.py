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


def is_recorded_as_committed(
    job_dir: JobDir, directory: Location, metadata: CheckpointMetadata, metadata_crc: int
) -> bool:
    """Whether all output of a snapshot was committed, by its marker or its job's journal.

    The checksum identifies the snapshot: ids and paths may be those of another job's.
    """
    with contextlib.suppress(OSError):
        if storage_at(directory).read(COMMITTED) == _marker(metadata_crc):
            return True
    if metadata.kind != "savepoint":
        return _is_in_journal(directory.parent, metadata.checkpoint, metadata_crc)
    places = {job_dir.path}
    if JOB_DIRECTORY in metadata.properties:
        inherited = directory.options if isinstance(directory, StorageUrl) else {}
        options = {**inherited, **job_dir.options}
        places.add(below(job_dir.path, metadata.properties[JOB_DIRECTORY], options or None))
    return any(_is_in_journal(place, metadata.checkpoint, metadata_crc) for place in places)


def _is_in_journal(job_directory: Location, checkpoint: int, metadata_crc: int) -> bool:
    job = JobDir(job_directory.parent, JobKey(job_directory.name))
    try:
        state = Journal(job.storage, job.key).state()
    except (OSError, PenstockError):
        return False  # nothing is known
    found = state.find(checkpoint)
    is_same = found is not None and found.metadata_crc == metadata_crc
    return is_same and checkpoint in state.commits_done


def _marker(metadata_crc: int) -> bytes:
    return f"{metadata_crc:08x}\n".encode()
