"""What changed in the state of a job between two of its checkpoints."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from penstock.checkpoint.storage.journal_entries import CheckpointCompletedEntry
from penstock.client.state_changes import ChangeFilter, bytes_to_compare, compare
from penstock.errors import IncomparableSnapshotsError, PenstockError
from penstock.redaction import redact
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call
from penstock.serve.jobs.cached_job import JobView
from penstock.serve.queryable.opt_in import has_opted_in
from penstock.serve.queryable.statuses import rest_error
from penstock.serve.rest.found_jobs import job_of
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.reading import pinned_of_job
from penstock.snapshots.stored_snapshot import StoredSnapshot

MOST_BYTES_COMPARED = 64 << 20
"""Of files that both checkpoints do not share: a page must not cost minutes of disk time."""
_KEYS = 10
"""Shown of each state."""
_KEPT = 16
_WAIT_S = 2.0
_PIN_SECONDS = 300.0
_LONGEST_NUMBER = 18

Key = tuple[str, int, int, int, int, bool]
_one_at_a_time = threading.Lock()
_known: OrderedDict[Key, dict[str, Any]] = OrderedDict()


def state_changes(call: Call) -> dict[str, Any]:
    """Return the checkpoints that can be compared; with from= and to= what changed between them.

    Raises:
        RestError: they cannot be compared.
    """
    _, view = job_of(call)
    completed = () if view.state is None else view.state.completed
    by_id = {entry.checkpoint: entry for entry in completed}
    answer: dict[str, Any] = {
        "now": time.time(),
        "checkpoints": [
            {"id": e.checkpoint, "completed": e.time, "is_savepoint": e.savepoint}
            for e in reversed(completed)
        ],
        "changes": None,
    }
    if "from" in call.query or "to" in call.query:
        answer["changes"] = _changes(view, _entry(call, "from", by_id), _entry(call, "to", by_id))
    return answer


def _entry(
    call: Call, name: str, known: dict[int, CheckpointCompletedEntry]
) -> CheckpointCompletedEntry:
    text = call.flag(name) or ""
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER):
        raise RestError(400, f"{name}= is the number of a checkpoint")
    if int(text) not in known:
        raise RestError(404, f"Checkpoint {text} does not exist any more: choose others")
    return known[int(text)]


def _changes(
    view: JobView, before: CheckpointCompletedEntry, after: CheckpointCompletedEntry
) -> dict[str, Any]:
    all_queryable = has_opted_in(view)
    key: Key = (
        str(view.directory.path),
        before.checkpoint,
        before.metadata_crc,
        after.checkpoint,
        after.metadata_crc,
        all_queryable,
    )
    with _waiting():
        if key not in _known:
            try:
                _known[key] = _compared(view, before, after, all_queryable=all_queryable)
            except IncomparableSnapshotsError as error:
                raise RestError(409, redact(str(error))) from None
            except PenstockError as error:
                raise rest_error(error) from None
            while len(_known) > _KEPT:
                _known.popitem(last=False)
        return _known[key]


@contextmanager
def _pinned(view: JobView, entry: CheckpointCompletedEntry) -> Iterator[StoredSnapshot]:
    found = pinned_of_job(view.directory, entry.checkpoint, _PIN_SECONDS)
    try:
        yield found.snapshot
    finally:
        found.release()


@contextmanager
def _waiting() -> Iterator[None]:
    if not _one_at_a_time.acquire(timeout=_WAIT_S):
        raise RestError(503, "Other checkpoints are being compared: try again in a moment")
    try:
        yield
    finally:
        _one_at_a_time.release()


def _compared(
    view: JobView,
    before: CheckpointCompletedEntry,
    after: CheckpointCompletedEntry,
    *,
    all_queryable: bool,
) -> dict[str, Any]:
    def may_show(state: KeyedState) -> bool:
        return all_queryable or bool(state.info.queryable)

    with (
        _pinned(view, before) as old,
        _pinned(view, after) as new,
    ):
        size = bytes_to_compare(old, new)
        if size > MOST_BYTES_COMPARED:
            message = (
                f"The checkpoints differ in files of {size >> 20} MB, and a page reads "
                f"{MOST_BYTES_COMPARED >> 20} MB at most: use penstock state diff "
                f"{view.directory.key} --from {before.checkpoint} --to {after.checkpoint}"
            )
            raise RestError(413, redact(message))
        found = compare(old, new, ChangeFilter(keys=_KEYS, may_show=may_show))
    result: dict[str, Any] = msgspec.to_builtins(found)
    return result
