"""Which snapshot a new attempt begins with: the journal's facts in, candidates out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.checkpoint.journal import JournalState
from penstock.checkpoint.settings import Guarantee
from penstock.errors import BadCheckpointError
from penstock.ids import CheckpointId


@dataclass(frozen=True, slots=True)
class Origin:
    """One snapshot a job may begin with."""

    path: Path
    checkpoint: CheckpointId | None = None
    """Its id, if it is a checkpoint of this job; None for any other snapshot."""
    crc: int | None = None
    commits_started: bool = False
    commits_done: bool = False
    """Whether sinks have committed all that it holds."""


def origins(
    state: JournalState, *, given: Path | None, fresh: bool, restarting: bool
) -> list[Origin]:
    """Return what to begin with, the best first; nothing means from the beginning.

    `given` is the snapshot the user named, `fresh` that nothing may be restored; both speak
    for the first attempt of a run, not for its restarts. A job that died or failed goes on where
    it was; one that came to an end begins anew. A run that was told to begin with a
    snapshot, died and is started again with the same words goes on where it was, too.
    """
    own = [
        Origin(
            Path(c.path),
            CheckpointId(c.checkpoint),
            c.metadata_crc,
            c.checkpoint in state.commits_started,
            c.checkpoint in state.commits_done,
        )
        for c in reversed(state.restorable)
    ]
    last = state.last_attempt
    began_with = None if last is None or last.restored_path is None else Path(last.restored_path)
    if restarting:
        return own or ([] if began_with is None else [Origin(began_with)])
    if fresh:
        return []
    if last is None or state.is_over:
        return [] if given is None else [Origin(given)]
    if given is not None and not _began_with(state, given):
        return [Origin(given)]
    if own:
        return own
    begins = given or began_with
    return [] if begins is None else [Origin(begins)]


def life_of(
    state: JournalState, attempt: str, snapshot_life: str | None, *, fresh: bool, restarting: bool
) -> str:
    """Return the life an attempt belongs to: that of its snapshot, or of the attempt before it.

    A job that begins anew begins a life of its own, in which nothing is left of what sources
    received or sinks prepared in an older one.
    """
    if snapshot_life is not None:
        return snapshot_life
    last = state.last_attempt
    if last is None or (not restarting and (fresh or state.is_over)):
        return attempt
    return last.life or attempt


def _began_with(state: JournalState, given: Path) -> bool:
    """Whether an attempt of this life of the job was given the same snapshot."""
    last = state.last_attempt
    for attempt in reversed(state.attempts):
        if last is None or attempt.life != last.life:
            return False
        if attempt.given_path is not None and Path(attempt.given_path) == given:
            return True
        if attempt.fresh or attempt.given_path is not None:
            return False
    return False


def fall_back(
    bad: Origin, damage: str, rest: list[Origin], mode: Guarantee, *, accept_duplicates: bool
) -> None:
    """Allow going back behind a damaged checkpoint, or refuse.

    Raises:
        BadCheckpointError: there is nothing to go back to, or records would be emitted twice.
    """
    older = rest[0].checkpoint if rest else None
    harmless = not bad.commits_started or mode is Guarantee.AT_LEAST_ONCE or accept_duplicates
    if older is None or not harmless:
        raise BadCheckpointError(bad.checkpoint or 0, damage, older)
