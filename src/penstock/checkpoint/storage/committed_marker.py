"""Records next to a savepoint that its output is committed, and finds such records.

The journal of the job that took a snapshot says whether sinks have committed what it holds. A
savepoint may be moved to where that journal is not, so a job that stops writes a marker beside the
metadata, after the journal entry. A crash in between leaves the journal alone to say so; without
both, the output is committed again, which changes nothing as long as the output is in its place.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from penstock.checkpoint.storage.job_dir import METADATA, JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.metadata import JOB_DIRECTORY, CheckpointMetadata
from penstock.errors import PenstockError
from penstock.ids import JobKey
from penstock.storage.local_storage import LocalStorage

COMMITTED = "_committed"


def mark_committed(directory: Path, metadata_crc: int) -> None:
    """Write the marker of a savepoint, unless the savepoint is no longer there."""
    if (directory / METADATA).exists():
        LocalStorage(directory).replace(COMMITTED, _marker(metadata_crc))


def is_recorded_as_committed(
    job_dir: JobDir, directory: Path, metadata: CheckpointMetadata, metadata_crc: int
) -> bool:
    """Whether all output of a snapshot was committed, by its marker or its job's journal.

    The checksum identifies the snapshot: ids and paths may be those of another job's.
    """
    with contextlib.suppress(OSError):
        if (directory / COMMITTED).read_bytes() == _marker(metadata_crc):
            return True
    if metadata.kind != "savepoint":
        return _is_in_journal(directory.parent, metadata.checkpoint, metadata_crc)
    recorded = metadata.properties.get(JOB_DIRECTORY)
    places = {job_dir.path, *([] if recorded is None else [Path(recorded)])}
    return any(_is_in_journal(place, metadata.checkpoint, metadata_crc) for place in places)


def _is_in_journal(job_directory: Path, checkpoint: int, metadata_crc: int) -> bool:
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
