"""Decides which snapshot a new attempt starts from, and deletes a claimed one that is subsumed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.checkpoint.settings import Guarantee
from penstock.checkpoint.storage.committed_output import CommittedOutput
from penstock.checkpoint.storage.job_dir import METADATA, JobDir, checkpoint_dir_name
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.checkpoint.storage.metadata import CheckpointMetadata, files_of
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.common.storage_url import Location, StorageUrl
from penstock.errors import BadCheckpointError
from penstock.ids import CheckpointId, JobKey
from penstock.savepoint.directory import dispose
from penstock.storage.storages import storage_at


@dataclass(frozen=True, slots=True)
class RestoreCandidate:
    """One snapshot that a job may start from."""

    path: str
    """As in the journal."""
    checkpoint: CheckpointId | None = None
    """Its id, if it is a checkpoint of this job; None for any other snapshot."""
    crc: int | None = None
    commits_started: bool = False
    committed: CommittedOutput = field(default_factory=CommittedOutput)
    """What sinks have committed of what it holds."""


def restore_candidates(
    state: JournalState, *, given: Location | None, fresh: bool, restarting: bool
) -> list[RestoreCandidate]:
    """Return the snapshots to start from, the best first; none means an empty state.

    `given` is the snapshot that the user named, `fresh` says that nothing may be restored; both
    apply to the first attempt of a run, not to its restarts. A job that died or failed resumes from
    its newest checkpoint; one that ended starts from nothing. A run that started from a given
    snapshot, died and is started again with the same arguments resumes, too.
    """
    own = [
        RestoreCandidate(
            c.path,
            CheckpointId(c.checkpoint),
            c.metadata_crc,
            c.checkpoint in state.commits_started,
            state.committed_output(c.attempt),
        )
        for c in reversed(state.restorable)
    ]
    last = state.last_attempt
    previous = None if last is None else last.restored_path
    if restarting:
        return own or _only(previous)
    if fresh:
        return []
    if last is None or state.is_over:
        return _only(given)
    if given is not None and not was_given(state, given):
        return _only(given)
    return own or _only(given or previous)


def _only(path: Location | str | None) -> list[RestoreCandidate]:
    return [] if path is None else [RestoreCandidate(str(path))]


def lineage_of(
    state: JournalState,
    attempt: str,
    snapshot_lineage: str | None,
    *,
    fresh: bool,
    restarting: bool,
) -> str:
    """Return the restore lineage of an attempt: that of its snapshot, or of the attempt before.

    A job that starts from nothing starts a new lineage, in which sources and sinks find no files
    of an older one.
    """
    if snapshot_lineage is not None:
        return snapshot_lineage
    last = state.last_attempt
    if last is None or (not restarting and (fresh or state.is_over)):
        return attempt
    return last.lineage or attempt


def was_given(state: JournalState, given: Location) -> bool:
    """Whether an attempt of this lineage was given the same snapshot."""
    last = state.last_attempt
    for attempt in reversed(state.attempts):
        if last is None or attempt.lineage != last.lineage:
            return False
        if attempt.given_path == str(given):
            return True
        if attempt.fresh or attempt.given_path is not None:
            return False
    return False


def check_fallback(
    bad: RestoreCandidate,
    damage: str,
    rest: list[RestoreCandidate],
    mode: Guarantee,
    *,
    accept_duplicates: bool,
) -> None:
    """Allow restoring an older checkpoint than a damaged one, or refuse.

    Raises:
        BadCheckpointError: there is no older one, or records would be emitted twice.
    """
    older = rest[0].checkpoint if rest else None
    harmless = not bad.commits_started or mode is Guarantee.AT_LEAST_ONCE or accept_duplicates
    if older is None or not harmless:
        raise BadCheckpointError(bad.checkpoint or 0, damage, older)


def discard_claimed(
    path: Location, metadata: CheckpointMetadata, options: Mapping[str, str] | None = None
) -> None:
    """Delete a claimed savepoint, or another job's checkpoint with the files only it refers to.

    Called when the job has a checkpoint of its own; may be interrupted and repeated. The options
    reach a store where the job of a savepoint was.
    """
    if not storage_at(path).exists(METADATA):
        return
    if metadata.kind == "savepoint":
        dispose(path, options=options)
        return
    other = JobDir(path.parent.parent, JobKey(path.parent.name))
    storage = other.storage
    shared: set[str] = set()
    for checkpoint in other.checkpoints_on_disk():
        file = f"{checkpoint_dir_name(checkpoint)}/{METADATA}"
        if checkpoint_dir_name(checkpoint) != path.name and storage.exists(file):
            shared.update(files_of(decode_metadata(storage.read(file), storage.location(file))))
    storage.delete_all(
        f"{other.shared.name}/{name}" for name in files_of(metadata) if name not in shared
    )
    # The metadata last: without it a repeated call would not find the files.
    if isinstance(path, StorageUrl):
        last = f"{path.name}/{METADATA}"
        storage.delete_all(name for name in storage.list(path.name) if name != last)
        storage.delete_tree(path.name)
        return
    for entry in path.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != METADATA:
            entry.unlink()
    (path / METADATA).unlink()
    path.rmdir()
