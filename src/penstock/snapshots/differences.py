"""The differences between the keyed state of two snapshots, in the order of stored keys.

Both sides are read side by side, one part of each at a time, so memory does not grow with the
state. What a subtask has in the same files on both sides is not read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.checkpoint.storage.metadata import OperatorSnapshot
from penstock.errors import IncomparableSnapshotsError
from penstock.savepoint.read import Entry
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.state_parts import CheckpointPart, OpenPart, StatePart
from penstock.snapshots.stored_snapshot import StoredSnapshot, opened_part
from penstock.state.backends.refs import StateRef
from penstock.state.key_groups import KeyGroupRange
from penstock.state.registry.migration import later_of


class Change(NamedTuple):
    """One entry that is not the same: its store key, and its stored value on either side."""

    key: bytes
    before: bytes | None
    """None if it was added."""
    after: bytes | None
    """None if it was removed."""

    @property
    def kind(self) -> str:
        """What happened to it: `added`, `removed` or `changed`."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


@dataclass(frozen=True, slots=True)
class Section:
    """A range of key groups that one part has on each side, if that side has the operator."""

    key_groups: KeyGroupRange
    before: StatePart | None
    after: StatePart | None


@dataclass(frozen=True, slots=True)
class StatePair:
    """One state in a section; of one type if both sides have it and their types go together."""

    before: KeyedState | None
    after: KeyedState | None

    @property
    def name(self) -> str:
        """Its name."""
        return self.shown.name

    @property
    def shown(self) -> KeyedState:
        """The state as it is after, or was before it was removed."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def is_comparable(self) -> bool:
        """Whether values can be compared; otherwise one state replaced another of its name."""
        return (
            self.before is not None
            and self.after is not None
            and (self.before.info == self.after.info)
        )


@dataclass(frozen=True, slots=True)
class OpenSection:
    """A section that is open for reading."""

    key_groups: KeyGroupRange
    before: OpenPart | None
    after: OpenPart | None
    operators: OperatorPair

    def states(self) -> list[StatePair]:
        """Return the states of either side, by name."""
        old = _states(self.operators.before, self.before)
        new = _states(self.operators.after, self.after)
        return [_paired(old.get(name), new.get(name)) for name in sorted({**old, **new})]

    def changes(self, pair: StatePair) -> Iterator[Change]:
        """Iterate over what is not the same in a state, by stored key."""
        old = self._entries(self.before, pair.before)
        new = self._entries(self.after, pair.after)
        if pair.is_comparable:
            return changes_between(old, new)
        return _replaced(old, new)

    def _entries(self, part: OpenPart | None, state: KeyedState | None) -> Iterator[Entry]:
        if part is None or state is None:
            return iter(())
        start, stop = self.key_groups.start, self.key_groups.stop
        return part.entries(state, start.to_bytes(2, "big"), stop.to_bytes(2, "big"))


@dataclass(frozen=True, slots=True)
class OperatorPair:
    """One operator in two snapshots; one of them may lack it."""

    before: OperatorSnapshot | None
    after: OperatorSnapshot | None
    sections: tuple[Section, ...]
    """In the order of key groups; without those whose files are the same on both sides."""

    @property
    def shown(self) -> OperatorSnapshot:
        """The operator as it is after, or was before it was removed."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def key_groups(self) -> int:
        """How many key groups have to be read."""
        return sum(len(section.key_groups) for section in self.sections)

    def open_sections(self, directory: Path | None = None) -> Iterator[OpenSection]:
        """Open one section after the other, each for as long as the iterator stays there.

        Raises:
            CorruptStateError: a file is missing, damaged or another one.
        """
        with _Side(directory) as old, _Side(directory) as new:
            for section in self.sections:
                before, after = old.open(section.before), new.open(section.after)
                yield OpenSection(section.key_groups, before, after, self)


def compared_operators(before: StoredSnapshot, after: StoredSnapshot) -> list[OperatorPair]:
    """Return the operators with keyed state of two snapshots, matched by their uids.

    Raises:
        IncomparableSnapshotsError: an operator has other keys or key groups in one than in the
            other.
    """
    old = {operator.uid: operator for operator in before.keyed_operators}
    new = {operator.uid: operator for operator in after.keyed_operators}
    pairs = []
    for uid in {**new, **old}:
        one, other = old.get(uid), new.get(uid)
        if one is not None and other is not None:
            _check(before, after, one, other)
        parts = (
            [] if one is None else before.parts(one),
            [] if other is None else after.parts(other),
        )
        pairs.append(OperatorPair(one, other, tuple(sections(*parts))))
    return pairs


def sections(before: Sequence[StatePart], after: Sequence[StatePart]) -> Iterator[Section]:
    """Divide the key groups of two sides so that each section has one part of either side.

    Sections whose parts have the same files are left out.
    """
    bounds = {bound for p in (*before, *after) for bound in (p.key_groups.start, p.key_groups.stop)}
    for start, stop in pairwise(sorted(bounds)):
        old, new = _part_with(before, start), _part_with(after, start)
        if not _same_files(old, new):
            yield Section(KeyGroupRange(start, stop), old, new)


def changes_between(before: Iterable[Entry], after: Iterable[Entry]) -> Iterator[Change]:
    """Merge entries that are sorted by key, and return those that are not on both sides."""
    olds, news = iter(before), iter(after)
    old, new = next(olds, None), next(news, None)
    while old is not None and new is not None:
        if old[0] == new[0]:
            if old[1] != new[1]:
                yield Change(old[0], old[1], new[1])
            old, new = next(olds, None), next(news, None)
        elif old[0] < new[0]:
            yield Change(old[0], old[1], None)
            old = next(olds, None)
        else:
            yield Change(new[0], None, new[1])
            new = next(news, None)
    while old is not None:
        yield Change(old[0], old[1], None)
        old = next(olds, None)
    while new is not None:
        yield Change(new[0], None, new[1])
        new = next(news, None)


def _replaced(before: Iterator[Entry], after: Iterator[Entry]) -> Iterator[Change]:
    for key, value in before:
        yield Change(key, value, None)
    for key, value in after:
        yield Change(key, None, value)


def _states(operator: OperatorSnapshot | None, part: OpenPart | None) -> dict[str, KeyedState]:
    if operator is None or part is None:
        return {}
    return {
        name: KeyedState(
            operator.uid,
            operator.name,
            name,
            info,
            operator.key_type,
            operator.max_parallelism,
        )
        for name, info in part.registry.items()
    }


def _paired(before: KeyedState | None, after: KeyedState | None) -> StatePair:
    if before is not None and after is not None:
        info = later_of(before.info, after.info)
        if info is not None:
            if not (before.info.queryable and after.info.queryable):
                # What one side does not let others look up is not shown beside the other.
                info = msgspec.structs.replace(info, queryable="")
            return StatePair(replace(before, info=info), replace(after, info=info))
    return StatePair(before, after)


def _part_with(parts: Sequence[StatePart], key_group: int) -> StatePart | None:
    return next((part for part in parts if key_group in part.key_groups), None)


def _same_files(before: StatePart | None, after: StatePart | None) -> bool:
    """Whether two parts are the same files: those have the same names in one place."""
    return (
        isinstance(before, CheckpointPart)
        and isinstance(after, CheckpointPart)
        and before.key_groups == after.key_groups
        and before.backend == after.backend
        and before.location == after.location
        and _contents(before.ref) == _contents(after.ref)
    )


def _contents(ref: StateRef) -> tuple[object, ...]:
    # A version without changes has a new number.
    return ref.files, ref.inline


def _check(
    before: StoredSnapshot, after: StoredSnapshot, one: OperatorSnapshot, other: OperatorSnapshot
) -> None:
    for what, old, new in (
        ("max parallelism", one.max_parallelism, other.max_parallelism),
        ("key type", one.key_type or "none", other.key_type or "none"),
    ):
        if old != new:
            raise IncomparableSnapshotsError(
                str(before.directory), str(after.directory), other.name, what, str(old), str(new)
            )


class _Side:
    """Has one part of a side open at a time."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._stack = contextlib.ExitStack()
        self._part: StatePart | None = None
        self._opened: OpenPart | None = None

    def open(self, part: StatePart | None) -> OpenPart | None:
        """Return a part; the one before is closed."""
        if part is not self._part:
            self._part = self._opened = None
            self._stack.close()
            if part is not None:
                self._opened = self._stack.enter_context(opened_part(part, self._directory))
            self._part = part
        return self._opened

    def __enter__(self) -> _Side:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
