"""What changed in the keyed state between two snapshots: counts by state, and some of the keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.errors import UnknownOperatorError, UnknownStateError
from penstock.snapshots.change_rows import change_rows
from penstock.snapshots.differences import (
    Change,
    OpenSection,
    OperatorPair,
    StatePair,
    compared_operators,
)
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.stored_snapshot import StoredSnapshot


class StateChanges(msgspec.Struct, frozen=True):
    """What changed in one state."""

    name: str
    kind: str
    type: str
    added: int
    removed: int
    changed: int
    keys: list[dict[str, Any]] = []
    """The first changes in the order of stored keys, if they were asked for and may be shown."""
    may_show: bool = True
    """Whether they may be shown."""

    @property
    def total(self) -> int:
        """How many entries are not the same."""
        return self.added + self.removed + self.changed


class OperatorChanges(msgspec.Struct, frozen=True):
    """What changed in one operator."""

    uid: str
    name: str
    is_in: str
    """`both` snapshots, or only the one `before` or `after`."""
    key_groups_read: int
    """The others are in files that both snapshots share, so nothing changed in them."""
    max_parallelism: int
    states: list[StateChanges]
    """By name; a state of key groups that were not read may be missing."""


class ComparedSnapshot(msgspec.Struct, frozen=True):
    """One side."""

    path: str
    kind: str
    job_id: str
    checkpoint: int
    completed: float


class SnapshotChanges(msgspec.Struct, frozen=True):
    """What changed between two snapshots."""

    before: ComparedSnapshot
    after: ComparedSnapshot
    operators: list[OperatorChanges]

    @property
    def total(self) -> int:
        """How many entries are not the same."""
        return sum(state.total for operator in self.operators for state in operator.states)


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """What is compared, and how many keys are returned."""

    operator: str | None = None
    """The uid of an operator, or the name that only it has; None for all."""
    state: str | None = None
    """The name of a state; None for all."""
    keys: int = 0
    """How many keys of each state, at most."""
    may_show: Callable[[KeyedState], bool] = field(default=lambda _: True)
    """Whether keys of a state may be returned."""


def bytes_to_compare(before: StoredSnapshot, after: StoredSnapshot) -> int:
    """Return the size of the files that have to be read to compare two snapshots.

    Raises:
        IncomparableSnapshotsError: an operator has other key groups or keys in one of them.
    """
    parts = {
        (side, pair.shown.uid, part.subtask): part.file_bytes
        for pair in compared_operators(before, after)
        for section in pair.sections
        for side, part in (("before", section.before), ("after", section.after))
        if part is not None
    }
    return sum(parts.values())


def compare(
    before: StoredSnapshot,
    after: StoredSnapshot,
    wanted: ChangeFilter,
    on_part: Callable[[str], None] = lambda _: None,
) -> SnapshotChanges:
    """Compare the keyed states of two snapshots; `on_part` is called with what is read next.

    Raises:
        UnknownOperatorError, UnknownStateError: neither has an operator or state that is wanted.
        IncomparableSnapshotsError: an operator has other key groups or keys in one of them.
        CorruptStateError: a file is missing, damaged or another one.
    """
    pairs = compared_operators(before, after)
    if wanted.operator is not None:
        uid = _uid(before, after, wanted.operator)
        pairs = [pair for pair in pairs if pair.shown.uid == uid]
    operators = [_changes(pair, wanted, on_part) for pair in pairs]
    if wanted.state is not None:
        if not any(operator.states for operator in operators):
            _check_state(before, after, pairs, wanted.state)
        if wanted.operator is None:
            operators = [operator for operator in operators if operator.states]
    return SnapshotChanges(_side(before), _side(after), operators)


def _side(snapshot: StoredSnapshot) -> ComparedSnapshot:
    found = snapshot.metadata
    return ComparedSnapshot(
        str(snapshot.directory), found.kind, found.job_id, found.checkpoint, found.completed
    )


def _uid(before: StoredSnapshot, after: StoredSnapshot, name: str) -> str:
    try:
        return after.operator(name).uid
    except UnknownOperatorError:
        return before.operator(name).uid


def _check_state(
    before: StoredSnapshot, after: StoredSnapshot, pairs: list[OperatorPair], name: str
) -> None:
    """Raise an error if no operator has a state; one that was not read may have it."""
    sides = ((before, "before"), (after, "after"))
    known = [
        state.name
        for snapshot, side in sides
        for pair in pairs
        if (operator := getattr(pair, side)) is not None
        for state in snapshot.keyed_states(operator)
    ]
    if name not in known and pairs:
        operator = pairs[0].after or pairs[0].before
        assert operator is not None
        names = ", ".join(pair.shown.name for pair in pairs)
        raise UnknownStateError(names, name, tuple(sorted(set(known))))


class _Counted:
    """The changes of one state so far."""

    def __init__(self, state: KeyedState) -> None:
        self.state = state
        self.may_show = True
        self.counts: Counter[str] = Counter()
        self.keys: list[dict[str, Any]] = []

    def add(self, pair: StatePair, changes: Iterator[Change], wanted: ChangeFilter) -> None:
        self.state = pair.shown
        sides = (state for state in (pair.before, pair.after) if state is not None)
        self.may_show = self.may_show and all(map(wanted.may_show, sides))
        most = wanted.keys - len(self.keys) if self.may_show else 0
        first: list[Change] = []
        for change in changes:
            self.counts[change.kind] += 1
            if len(first) < most:
                first.append(change)
        self.keys += change_rows(pair, first)

    def result(self) -> StateChanges:
        counts = self.counts
        return StateChanges(
            self.state.name,
            self.state.kind,
            self.state.info.type,
            counts["added"],
            counts["removed"],
            counts["changed"],
            self.keys if self.may_show else [],
            self.may_show,
        )


def _changes(
    pair: OperatorPair, wanted: ChangeFilter, on_part: Callable[[str], None]
) -> OperatorChanges:
    found: dict[str, _Counted] = {}
    shown = pair.shown
    groups = shown.max_parallelism
    for section in pair.open_sections():
        start, stop = section.key_groups.start, section.key_groups.stop
        on_part(f"{shown.name}, key groups {start}-{stop - 1} of {groups}")
        _add(section, found, wanted)
    is_in = "both" if pair.before and pair.after else "before" if pair.before else "after"
    states = [counted.result() for _, counted in sorted(found.items())]
    return OperatorChanges(shown.uid, shown.name, is_in, pair.key_groups, groups, states)


def _add(section: OpenSection, found: dict[str, _Counted], wanted: ChangeFilter) -> None:
    for state in section.states():
        if wanted.state is None or state.name == wanted.state:
            counted = found.setdefault(state.name, _Counted(state.shown))
            counted.add(state, section.changes(state), wanted)
