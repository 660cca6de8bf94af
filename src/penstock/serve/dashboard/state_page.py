"""The state in the newest checkpoint of a job: sizes by operator, state and key group."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Any

import msgspec

from penstock.client.snapshot_facts import Inspection, inspect
from penstock.client.state_sizes import sizes_of
from penstock.errors import PenstockError
from penstock.redaction import redact
from penstock.serve.http.calls import Call
from penstock.serve.jobs.cached_job import JobView
from penstock.serve.queryable.opt_in import has_opted_in
from penstock.serve.rest.found_jobs import job_of

MOST_BYTES_READ = 256 << 20
"""Of larger checkpoints only the metadata is read: a page must not cost minutes of disk time."""
_KEPT = 8
_READ_AT_ONCE = 2
"""Checkpoints that are read at the same time: other calls need threads, too."""
_WAIT_S = 1.0

Key = tuple[str, int, int]
_lock = threading.Lock()
_known: OrderedDict[Key, tuple[dict[str, Any], str | None]] = OrderedDict()
_readers: set[Key] = set()
_some_free = threading.Condition(_lock)


def newest_state(call: Call) -> dict[str, Any]:
    """Return the states in the newest checkpoint that exists."""
    _, view = job_of(call)
    snapshot, problem = _newest(view)
    return {
        "now": time.time(),
        "snapshot": snapshot,
        "problem": problem,
        "all_queryable": has_opted_in(view),
    }


def _newest(view: JobView) -> tuple[dict[str, Any] | None, str | None]:
    newest = None if view.state is None else next(reversed(view.state.completed), None)
    if newest is None:
        return None, None
    key = (str(view.directory.path), newest.checkpoint, newest.metadata_crc)
    with _lock:
        free = _some_free.wait_for(
            lambda: key in _known or (key not in _readers and len(_readers) < _READ_AT_ONCE),
            _WAIT_S,
        )
        if key in _known:
            return _known[key]
        if not free:
            return None, f"Checkpoint {newest.checkpoint} is being read, or others are: wait."
        _readers.add(key)
    read = None
    try:
        read = _read(view, newest.path)
    except (OSError, PenstockError) as error:
        # It may have been subsumed a moment ago: the next request finds a newer one.
        return None, redact(f"Checkpoint {newest.checkpoint} cannot be read: {error}")
    finally:
        with _lock:
            _readers.discard(key)
            if read is not None:
                _known[key] = read
            while len(_known) > _KEPT:
                _known.popitem(last=False)
            _some_free.notify_all()
    return read


def _read(view: JobView, path: str) -> tuple[dict[str, Any], str | None]:
    place = view.directory.from_journal_path(path)
    found = inspect(place, with_files=False)
    if found.bytes > MOST_BYTES_READ:
        limit = MOST_BYTES_READ >> 20
        return _shown(found), f"The checkpoint has more than {limit} MB, so its files are not read."
    found = inspect(place, by_key_group=True)
    problem = None
    if found.damage:
        problem = "; ".join(f"{damage.path}: {damage.reason}" for damage in found.damage[:3])
    return _shown(found), problem


def _shown(found: Inspection) -> dict[str, Any]:
    sizes: dict[str, Any] = msgspec.to_builtins(sizes_of(found))
    for operator in sizes["operators"]:
        for state in operator["states"]:
            # The page shows those of all states of an operator together.
            del state["key_groups"], state["entries_by_key_group"]
    return sizes
