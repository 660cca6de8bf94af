"""Removes uploads into a job's directory in a store that killed processes have left unfinished."""

from __future__ import annotations

import logging
import re

from penstock.checkpoint.storage.job_dir import JobDir, checkpoint_of
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.common.storage_url import StorageUrl
from penstock.ids import is_no_later

logger = logging.getLogger("penstock.job")

_WRITTEN_BY = re.compile(r"(?:[0-9]+-)?(a[0-9]+)(?:-.*)?")
"""The name of a directory or file that has the attempt in it which wrote the file."""
_CONNECTOR_LEVELS = 3
"""The directory of connectors, the lineage and the step: these are no attempts."""


def remove_unfinished_uploads(job_dir: JobDir, journal: Journal, state: JournalState) -> None:
    """Remove what dead attempts have left of checkpoints, state and staged output; best effort.

    Called when no task of this attempt is running. A driver that was suspended and replaced does
    not come here, and if it was replaced just now, what its successor uploads has another name.

    Raises:
        FencedError: another driver has taken over.
    """
    last = state.last_attempt
    if last is None or not isinstance(job_dir.path, StorageUrl):
        return
    try:
        journal.check_tail()
        job_dir.storage.delete_unfinished(
            "", lambda path: is_left_over(path, last.attempt, state.highest_id)
        )
    except OSError as error:
        logger.warning("Unfinished uploads below %s are not removed: %s", job_dir.path, error)


def is_left_over(path: str, attempt: str, highest_id: int) -> bool:
    """Whether an upload in the job's directory is of this attempt or an older one.

    ``highest_id`` is that of the attempt's journal: a later attempt uses higher ids. An upload that
    does not tell its attempt is left alone.
    """
    directory, *names = path.split("/")
    checkpoint = checkpoint_of(directory)
    if checkpoint is not None:
        return checkpoint <= highest_id
    if directory == "connectors":
        names = names[_CONNECTOR_LEVELS - 1 :]
    elif directory == "shared":
        names = names[-1:]
    else:
        return False
    written = filter(None, map(_WRITTEN_BY.fullmatch, reversed(names)))
    found = next(written, None)
    return found is not None and is_no_later(found[1], attempt)
