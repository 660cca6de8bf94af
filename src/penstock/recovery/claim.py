"""The end of a snapshot that a job claimed: it goes when the job's own checkpoint is there."""

from __future__ import annotations

import shutil
from pathlib import Path

from penstock.checkpoint.job_dir import METADATA, JobDir
from penstock.checkpoint.metadata import CheckpointMetadata, files_of
from penstock.checkpoint.metadata_codec import decode_metadata
from penstock.ids import JobKey
from penstock.savepoint.directory import dispose


def discard_claimed(path: Path, metadata: CheckpointMetadata) -> None:
    """Delete a savepoint, or another job's checkpoint with the files it alone refers to.

    May be cut off and called again; does nothing if it is gone already.
    """
    if not (path / METADATA).exists():
        return
    if metadata.kind == "savepoint":
        dispose(path)
        return
    other = JobDir(path.parent.parent, JobKey(path.parent.name))
    shared: set[str] = set()
    for checkpoint in other.checkpoints_on_disk():
        file = other.metadata(checkpoint)
        if file.parent != path and file.exists():
            shared.update(files_of(decode_metadata(file.read_bytes(), str(file))))
    for name in files_of(metadata):
        if name not in shared:
            (other.shared / name).unlink(missing_ok=True)
    shutil.rmtree(path)
