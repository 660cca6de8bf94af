"""Checks a savepoint without writing it, and reports all problems by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.storage.metadata import OperatorSnapshot
from penstock.ids import OperatorUid
from penstock.recovery.operator_matching import has_state, mismatches
from penstock.snapshots.writing.row_encoder import Problem
from penstock.spark.state.writing.drafts import CarriedState, OperatorDraft, chosen_columns
from penstock.spark.state.writing.jobs import StateWritten, WriteJobs
from penstock.spark.state.writing.rows import KeyedRows
from penstock.state.savepoint_file import SavepointFile

MOST_PROBLEMS = 1000


@dataclass(frozen=True, slots=True)
class CheckedState:
    """A keyed state of a savepoint that was checked."""

    operator: str
    state: str
    type: str
    rows: int | None
    """The entries that would be written; None if it stays as it is."""


@dataclass(frozen=True, slots=True)
class SavepointReport:
    """What `dry_run` has found."""

    problems: tuple[str, ...]
    """All of them; empty if the savepoint can be written."""
    operations: tuple[str, ...]
    """What is changed."""
    states: tuple[CheckedState, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def __str__(self) -> str:
        lines = [
            f"{one.operator}/{one.state}: {one.type}, "
            + ("unchanged" if one.rows is None else f"{one.rows:,} entries")
            for one in self.states
        ]
        lines += [f"problem: {problem}" for problem in self.problems]
        return "\n".join(lines) or "an empty savepoint"


def checked(
    jobs: WriteJobs,
    drafts: Sequence[OperatorDraft],
    known: Iterable[Problem],
    operations: Sequence[str],
    program: Any = None,
) -> SavepointReport:
    """Check operators, and their rows by encoding and sorting them."""
    problems = list(known)
    states = []
    for draft in drafts:
        for name, keyed in draft.keyed.items():
            rows: int | None = None
            if isinstance(keyed, KeyedRows):
                columns, missing = chosen_columns(draft, keyed)
                problems += missing
                if not missing:
                    written = jobs.write_rows(draft.target(keyed), keyed.frame, columns)
                    problems += problems_of(written)
                    rows = sum(one.rows for one in written)
            states.append(CheckedState(draft.uid, name, str(keyed.info), rows))
    if program is not None:
        problems += _mismatches(drafts, program)
    texts = tuple(dict.fromkeys(map(str, problems)))
    return SavepointReport(texts[:MOST_PROBLEMS], tuple(operations), tuple(states))


def problems_of(written: Iterable[StateWritten]) -> Iterator[Problem]:
    """Iterate over the problems that tasks have found."""
    for one in written:
        yield from one.problems


def _mismatches(drafts: Sequence[OperatorDraft], program: Any) -> Iterator[Problem]:
    """Compare the operators with those of a program."""
    plan = program.planned()
    nodes = {node.uid: node for stage in plan.stages for node in stage.nodes}
    for draft in drafts:
        operator = _outline(draft)
        node = nodes.get(OperatorUid(draft.uid))
        if node is not None:
            for reason in mismatches(plan, node, operator):
                yield Problem(draft.uid, reason)
        elif has_state(operator):
            there = ", ".join(sorted(map(repr, nodes)))
            reason = f"the program has no operator with this uid; there are: {there}"
            yield Problem(draft.uid, reason)


def _outline(draft: OperatorDraft) -> OperatorSnapshot:
    """Return what the operator will be in the metadata, with one file for each state."""
    files = [
        SavepointFile(name, keyed.info.kind, keyed.info.type, 0, 1, 0, "", 0, 0, 0, 0, 0)
        for name, keyed in draft.keyed.items()
    ]
    return OperatorSnapshot(
        uid=draft.uid,
        name=draft.name,
        kind=draft.kind,
        parallelism=draft.parallelism,
        max_parallelism=draft.max_parallelism,
        version=0,
        key_type=draft.key_type,
        operator_state=draft.encoded_lists(),
        source=draft.source,
        sink=draft.sink,
        savepoint=files,
    )


def carried(draft: OperatorDraft) -> list[CarriedState]:
    """Return the keyed states of an operator that stay as they are."""
    return [keyed for keyed in draft.keyed.values() if isinstance(keyed, CarriedState)]
