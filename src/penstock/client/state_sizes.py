"""The sizes of the state in a snapshot: by operator, by state over all subtasks, by key group."""

from __future__ import annotations

from collections import Counter

import msgspec

from penstock.client.snapshot_facts import Inspection, OperatorFacts, StateFacts


class KeyedStateSize(msgspec.Struct, frozen=True):
    """One keyed state over all subtasks."""

    name: str
    kind: str
    type: str
    ttl_ms: int | None
    entries: int
    bytes: int
    skew: float | None
    """The coefficient of variation of its bytes over subtasks; None if there is only one."""
    key_groups: list[int] = []
    """Bytes by key group; empty if there are none or they are not known."""
    entries_by_key_group: list[int] = []
    queryable: str = ""
    """The name under which others may look it up, empty if it has none."""


class ListSize(msgspec.Struct, frozen=True):
    """One list of operator state over all subtasks."""

    name: str
    declared: str
    elements: int
    bytes: int


class SubtaskSize(msgspec.Struct, frozen=True):
    """The files of one subtask; its key groups end before `stop_key_group`."""

    subtask: int
    first_key_group: int
    stop_key_group: int
    files: int
    bytes: int


class OperatorSize(msgspec.Struct, frozen=True):
    """One operator; `bytes` are those of its files."""

    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    backend: str | None
    key_type: str
    bytes: int
    skew: float | None
    """The coefficient of variation of the bytes of its subtasks; None if there is only one."""
    committables: int | None
    splits: int
    in_flight_records: int
    in_flight_bytes: int
    key_groups: list[int]
    """Bytes of all keyed states by key group; empty if there are none or they are not known."""
    subtasks: list[SubtaskSize]
    states: list[KeyedStateSize]
    lists: list[ListSize]


class SnapshotSizes(msgspec.Struct, frozen=True):
    """The sizes of one checkpoint or savepoint."""

    checkpoint: int
    kind: str
    job_id: str
    job_name: str
    completed: float
    attempt: str
    version: str
    path: str
    files: int
    bytes: int
    operators: list[OperatorSize]


def sizes_of(found: Inspection) -> SnapshotSizes:
    """Return the sizes of what was inspected; those by key group if they were asked for."""
    return SnapshotSizes(
        checkpoint=found.checkpoint,
        kind=found.kind,
        job_id=found.job_id,
        job_name=found.job_name,
        completed=found.completed,
        attempt=found.attempt,
        version=found.penstock_version,
        path=found.path,
        files=found.files,
        bytes=found.bytes,
        operators=[_operator(operator) for operator in found.operators],
    )


def skew_of(sizes: list[int]) -> float | None:
    """Return the coefficient of variation; None for fewer than two sizes, or if all are 0."""
    mean = sum(sizes) / len(sizes) if sizes else 0
    if len(sizes) < 2 or mean == 0:
        return None
    variance = sum((size - mean) ** 2 for size in sizes) / len(sizes)
    return float(variance**0.5 / mean)


def _operator(operator: OperatorFacts) -> OperatorSize:
    states = _states(operator)
    subtasks = [
        SubtaskSize(s.subtask, s.first_key_group, s.stop_key_group, s.files, s.bytes)
        for s in operator.subtasks
    ]
    known = [state.key_groups for state in states if state.key_groups]
    return OperatorSize(
        uid=operator.uid,
        name=operator.name,
        parallelism=operator.parallelism,
        max_parallelism=operator.max_parallelism,
        backend=operator.backend,
        key_type=operator.key_type,
        bytes=sum(subtask.bytes for subtask in subtasks),
        skew=skew_of([subtask.bytes for subtask in subtasks]),
        committables=operator.committables,
        splits=0 if operator.positions is None else len(operator.positions),
        in_flight_records=sum(state.records for state in operator.in_flight),
        in_flight_bytes=sum(state.bytes for state in operator.in_flight),
        key_groups=[sum(sizes) for sizes in zip(*known, strict=True)],
        subtasks=subtasks,
        states=states,
        lists=_lists(operator),
    )


def _states(operator: OperatorFacts) -> list[KeyedStateSize]:
    by_name: dict[str, list[StateFacts]] = {}
    for subtask in operator.subtasks:
        for state in subtask.states:
            by_name.setdefault(state.name, []).append(state)
    return [_state(parts, operator) for _, parts in sorted(by_name.items())]


def _state(parts: list[StateFacts], operator: OperatorFacts) -> KeyedStateSize:
    sizes, entries = Counter[int](), Counter[int]()
    for part in parts:
        sizes.update(part.by_key_group)
        entries.update(part.entries_by_key_group)
    missing = [0] * (operator.parallelism - len(parts))
    groups = range(operator.max_parallelism) if sizes else ()
    return KeyedStateSize(
        name=parts[0].name,
        kind=parts[0].kind,
        type=parts[0].type,
        ttl_ms=parts[0].ttl_ms,
        entries=sum(part.entries for part in parts),
        bytes=sum(part.bytes for part in parts),
        skew=skew_of([part.bytes for part in parts] + missing),
        key_groups=[sizes[group] for group in groups],
        entries_by_key_group=[entries[group] for group in groups],
        queryable=parts[0].queryable,
    )


def _lists(operator: OperatorFacts) -> list[ListSize]:
    found: dict[str, ListSize] = {}
    for subtask in operator.subtasks:
        for facts in subtask.lists:
            before = found.get(facts.name, ListSize(facts.name, facts.declared, 0, 0))
            elements, size = before.elements + facts.elements, before.bytes + facts.bytes
            found[facts.name] = ListSize(facts.name, before.declared, elements, size)
    return list(found.values())
