"""The operators of a savepoint that is being put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from penstock.checkpoint.storage.metadata import OperatorSnapshot, SinkState, SourceState
from penstock.graph.transformation import OperatorKind
from penstock.savepoint.layout import SavedOperator
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.state_parts import StatePart
from penstock.snapshots.writing.base_snapshot import BaseSnapshot
from penstock.snapshots.writing.row_encoder import Problem
from penstock.snapshots.writing.targets import StateTarget, columns_by_role
from penstock.spark.state.writing.rows import KeyedRows
from penstock.state.operator.states import StoredList, decode_lists, encode_lists
from penstock.state.registry.meta_info import TIMERS, StateMetaInfo


@dataclass(frozen=True, slots=True)
class CarriedState:
    """A keyed state that stays as it is."""

    state: KeyedState

    @property
    def info(self) -> StateMetaInfo:
        """Its registry entry."""
        return self.state.info


Keyed = KeyedRows | CarriedState


@dataclass
class OperatorDraft:
    """An operator of the new savepoint."""

    uid: str
    name: str
    kind: str
    key_type: str
    max_parallelism: int
    parallelism: int
    keyed: dict[str, Keyed] = field(default_factory=dict)
    """By name, timers among them."""
    lists: dict[str, list[StoredList]] = field(default_factory=dict)
    """Operator state by name: what each subtask has, or all of it."""
    operator_state: list[bytes] | None = None
    """Operator state that stays as it is; None if `lists` counts."""
    source: SourceState | None = None
    has_new_positions: bool = False
    """Whether a source does not continue where it was."""
    sink: SinkState | None = None
    old: OperatorSnapshot | None = None
    """What it was in the base."""
    parts: Sequence[StatePart] = ()

    @property
    def saved(self) -> SavedOperator:
        """What its files say about it."""
        return SavedOperator(self.uid, self.key_type, self.max_parallelism)

    @property
    def keeps_files(self) -> bool:
        """Whether files of a savepoint can be copied: uid and key groups are the same."""
        old = self.old
        is_same = old is not None and bool(old.savepoint) and old.uid == self.uid
        return is_same and self.keeps_key_groups

    @property
    def keeps_key_groups(self) -> bool:
        """Whether keys stay in their key groups and subtasks."""
        old = self.old
        now = self.max_parallelism, self.parallelism
        return old is not None and (old.max_parallelism, old.parallelism) == now

    @property
    def has_pending_output(self) -> bool:
        """Whether a sink has output that is not committed, as far as it is known."""
        return self.sink is not None and bool(self.sink.committables or self.sink.state)

    def target(self, rows: KeyedRows) -> StateTarget:
        """Return where rows of a state are written to."""
        return StateTarget(self.saved, self.parallelism, rows.name, rows.info)

    def encoded_lists(self) -> list[bytes]:
        """Return the operator state of each subtask."""
        if self.operator_state is not None:
            return self.operator_state
        if not self.lists:
            return []
        return [
            encode_lists({name: parts[subtask] for name, parts in self.lists.items()})
            for subtask in range(self.parallelism)
        ]

    def open_lists(self) -> dict[str, list[StoredList]]:
        """Return operator state by name, to be changed."""
        if self.operator_state is not None:
            versions = [decode_lists(version) for version in self.operator_state]
            names = {name: stored for version in versions for name, stored in version.items()}
            empty = {n: StoredList(s.distribution, s.type, []) for n, s in names.items()}
            self.lists = {
                name: [version.get(name, empty[name]) for version in versions] for name in names
            }
            self.operator_state = None
        return self.lists


def new_draft(
    uid: str, name: str, kind: OperatorKind, key_type: str, max_parallelism: int, parallelism: int
) -> OperatorDraft:
    """Return an operator without state."""
    return OperatorDraft(uid, name, kind.value, key_type, max_parallelism, parallelism)


def drafts_of(base: BaseSnapshot) -> list[OperatorDraft]:
    """Return the operators of a snapshot, unchanged."""
    found = []
    for old in base.metadata.operators:
        draft = OperatorDraft(
            old.uid,
            old.name,
            old.kind,
            old.key_type,
            old.max_parallelism,
            old.parallelism,
            operator_state=list(old.operator_state),
            source=old.source,
            sink=base.pending_output(old),
            old=old,
        )
        if old.keyed or old.savepoint:
            draft.parts = base.stored.parts(old)
            states = base.stored.keyed_states(old)
            draft.keyed = {state.name: CarriedState(state) for state in states}
        found.append(draft)
    return found


def chosen_columns(draft: OperatorDraft, rows: KeyedRows) -> tuple[dict[str, str], list[Problem]]:
    """Return the columns that rows are written from, and the problems of those that are missing."""
    frame: DataFrame = rows.frame
    found, missing = columns_by_role(draft.target(rows), frame.columns)
    there = ", ".join(frame.columns)
    problems = [
        Problem(
            draft.uid,
            f"there is no column {' or '.join(map(repr, names))}; there are: {there}",
            rows.name,
        )
        for names in missing
    ]
    return found, problems


def are_timers(keyed: Keyed) -> bool:
    """Whether a keyed state is the timers of a time domain."""
    return keyed.info.kind == TIMERS
