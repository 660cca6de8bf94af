"""The state in the newest checkpoint of a job: sizes by operator, state and key group."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Any

import msgspec

from penstock.client.snapshot_facts import Inspection, OperatorFacts, StateFacts, inspect
from penstock.errors import PenstockError
from penstock.redaction import redact
from penstock.serve.http.calls import Call
from penstock.serve.jobs.cached_job import JobView
from penstock.serve.rest.found_jobs import job_of

MOST_BYTES_READ = 256 << 20
"""Of larger checkpoints only the metadata is read: a page must not cost minutes of disk time."""
_KEPT = 8

_one_at_a_time = threading.Lock()
_known: OrderedDict[tuple[str, int, int], tuple[dict[str, Any], str | None]] = OrderedDict()


def newest_state(call: Call) -> dict[str, Any]:
    """Return the states in the newest checkpoint that exists."""
    _, view = job_of(call)
    snapshot, problem = _newest(view)
    return {"now": time.time(), "snapshot": snapshot, "problem": problem}


def _newest(view: JobView) -> tuple[dict[str, Any] | None, str | None]:
    newest = None if view.state is None else next(reversed(view.state.completed), None)
    if newest is None:
        return None, None
    key = (str(view.directory.path), newest.checkpoint, newest.metadata_crc)
    with _one_at_a_time:
        if key not in _known:
            try:
                _known[key] = _read(view, newest.path)
            except (OSError, PenstockError) as error:
                # It may have been subsumed a moment ago: the next request finds a newer one.
                return None, redact(f"Checkpoint {newest.checkpoint} cannot be read: {error}")
            while len(_known) > _KEPT:
                _known.popitem(last=False)
        return _known[key]


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
    return {
        "checkpoint": found.checkpoint,
        "completed": found.completed,
        "attempt": found.attempt,
        "version": found.penstock_version,
        "path": found.path,
        "files": found.files,
        "bytes": found.bytes,
        "operators": [_operator(operator) for operator in found.operators],
    }


def _operator(operator: OperatorFacts) -> dict[str, Any]:
    groups = [0] * operator.max_parallelism
    for subtask in operator.subtasks:
        for state in subtask.states:
            for group, size in state.by_key_group.items():
                if group < len(groups):
                    groups[group] += size
    return {
        "uid": operator.uid,
        "name": operator.name,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "backend": operator.backend,
        "key_type": operator.key_type,
        "bytes": sum(subtask.bytes for subtask in operator.subtasks),
        "committables": operator.committables,
        "splits": 0 if operator.positions is None else len(operator.positions),
        "in_flight_records": sum(state.records for state in operator.in_flight),
        "in_flight_bytes": sum(state.bytes for state in operator.in_flight),
        "key_groups": groups if any(groups) else [],
        "subtasks": [
            {
                "subtask": subtask.subtask,
                "first_key_group": subtask.first_key_group,
                "stop_key_group": subtask.stop_key_group,
                "files": subtask.files,
                "bytes": subtask.bytes,
            }
            for subtask in operator.subtasks
        ],
        "states": _states(operator),
        "lists": _lists(operator),
    }


def _states(operator: OperatorFacts) -> list[dict[str, Any]]:
    """Return the keyed states, each over all subtasks, with its coefficient of variation."""
    by_name: dict[str, list[StateFacts]] = {}
    for subtask in operator.subtasks:
        for state in subtask.states:
            by_name.setdefault(state.name, []).append(state)
    return [
        {
            "name": name,
            "kind": parts[0].kind,
            "type": parts[0].type,
            "ttl_ms": parts[0].ttl_ms,
            "entries": sum(part.entries for part in parts),
            "bytes": sum(part.bytes for part in parts),
            "skew": _skew([part.bytes for part in parts], operator.parallelism),
        }
        for name, parts in by_name.items()
    ]


def _skew(sizes: list[int], parallelism: int) -> float | None:
    values = sizes + [0] * max(0, parallelism - len(sizes))
    mean = sum(values) / len(values)
    if len(values) < 2 or mean == 0:
        return None
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    return float(variance**0.5 / mean)


def _lists(operator: OperatorFacts) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for subtask in operator.subtasks:
        for facts in subtask.lists:
            shown = found.setdefault(
                facts.name,
                {**msgspec.structs.asdict(facts), "elements": 0, "bytes": 0},
            )
            shown["elements"] += facts.elements
            shown["bytes"] += facts.bytes
    return list(found.values())
