"""Engines broken on purpose, in one rule each, which the verifier must notice.

`PENSTOCK_TEST_BREAK` names the one that the driver of the killed job runs with.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from penstock.channel.log import Entry
from penstock.checkpoint.barriers.alignment import (
    AlignmentDecision,
    BarrierHandling,
    InputFacts,
    awaited_barrier,
    barrier_position,
    decide_alignment,
)
from penstock.checkpoint.barriers.in_flight_data import InFlightData
from penstock.checkpoint.coordinator.actions import CompleteCheckpoint
from penstock.checkpoint.coordinator.checkpoint_coordinator import CheckpointCoordinator
from penstock.checkpoint.coordinator.commit_executor import CommitExecutor
from penstock.checkpoint.coordinator.state_machine import CheckpointStateMachine
from penstock.connectors.contracts.source import SourceEnumerator
from penstock.connectors.files.local_part_files import LocalPartFiles
from penstock.ids import ChannelId, CheckpointId
from penstock.job.input import channel_input
from penstock.job.restore.snapshot_reader import Snapshot
from penstock.job.restore.state_restorer import StateRestorer
from penstock.job.snapshot import stage_snapshotter as stage_snapshot
from penstock.job.snapshot import stage_state
from penstock.task.messages import Acknowledgement
from penstock.testing import scripted_source

BREAK = "PENSTOCK_TEST_BREAK"


def commit_before_completion() -> None:
    """Show files at the barrier, before the checkpoint counts; die when some are to be seen."""
    make_pending, shown_so_far = LocalPartFiles._make_pending, itertools.count(1)

    def shown(self: LocalPartFiles, part: Any, part_format: Any) -> Any:
        pending = make_pending(self, part, part_format)
        os.link(pending.pending, pending.final)
        if next(shown_so_far) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return pending

    LocalPartFiles._make_pending = shown  # type: ignore[method-assign]


def no_commit_on_restore() -> None:
    """Do not commit the pending committables of the restored checkpoint."""
    commit = CommitExecutor.commit
    restored: list[CheckpointId] = []

    def first_is_left_out(
        self: CommitExecutor, checkpoint: CheckpointId, committables: Any
    ) -> None:
        if checkpoint and not restored and not self._executor._threads:
            restored.append(checkpoint)
            return
        commit(self, checkpoint, committables)

    CommitExecutor.commit = first_is_left_out  # type: ignore[method-assign]


def no_rewind() -> None:
    """Let sources start a little after their position in the checkpoint."""
    _start_elsewhere(lambda position: position + 5)


def rewind_too_far() -> None:
    """Let sources start a little before their position in the checkpoint."""
    _start_elsewhere(lambda position: max(0, position - 5))


def _start_elsewhere(move: Callable[[int], int]) -> None:
    enumerator: type[SourceEnumerator] = scripted_source._Enumerator
    start = enumerator.start

    def elsewhere(self: SourceEnumerator, positions: Mapping[str, int]) -> None:
        start(self, {split: move(position) for split, position in positions.items()})

    enumerator.start = elsewhere  # type: ignore[method-assign]


Inputs = Mapping[ChannelId, InputFacts]
Live = Mapping[CheckpointId, BarrierHandling]


class Fate:
    """Lets the process die when a checkpoint counts in which something is wrong.

    Stages after its barrier stop, so that no later checkpoint hides the error.
    """

    def __init__(self) -> None:
        self._harmed: CheckpointId | None = None
        self._completed = CheckpointId(0)
        complete = CheckpointCoordinator._complete

        def completed(coordinator: CheckpointCoordinator, action: CompleteCheckpoint) -> None:
            complete(coordinator, action)
            self._completed = action.pending.id
            self._die_if_due()

        CheckpointCoordinator._complete = completed  # type: ignore[method-assign,assignment]

    def harm(self, checkpoint: CheckpointId) -> None:
        """Learn that something is wrong in a checkpoint."""
        if self._harmed is None:
            self._harmed = checkpoint
            self._die_if_due()

    def decide(
        self, decide: Callable[[Inputs, Live, int, CheckpointId], AlignmentDecision]
    ) -> None:
        """Let stages decide in another way where their next micro-batch ends."""

        def until_harmed(
            inputs: Inputs, live: Live, most: int, last: CheckpointId
        ) -> AlignmentDecision:
            cut = decide(inputs, live, most, last)
            return (
                AlignmentDecision({}) if self._harmed is not None and last >= self._harmed else cut
            )

        setattr(channel_input, "decide_alignment", until_harmed)  # noqa: B010 - mypy calls it private

    def _die_if_due(self) -> None:
        if self._harmed is not None and self._completed >= self._harmed:
            os.kill(os.getpid(), signal.SIGKILL)


def leaky_gate() -> None:
    """Pass a barrier on as soon as the first input brings it."""
    fate = Fate()
    passed: dict[CheckpointId, list[Entry]] = {}

    def leaky(inputs: Inputs, live: Live, most: int, last: CheckpointId) -> AlignmentDecision:
        if len(inputs) < 2:
            return decide_alignment(inputs, live, most, last)
        for late in _late(inputs, passed):
            fate.harm(late)
        target = awaited_barrier(inputs, {n: how for n, how in live.items() if n > last})
        cut = decide_alignment(inputs, live, most, last)
        if target is None or cut.barrier is not None or not cut.blocked:
            return cut
        passed[target] = []
        return AlignmentDecision(dict.fromkeys(cut.blocked, 1), target)

    fate.decide(leaky)


def _late(inputs: Inputs, passed: Mapping[CheckpointId, Sequence[Entry]]) -> Iterator[CheckpointId]:
    """The checkpoints that were cut without some data before their barriers, but for the given."""
    for n, given in passed.items():
        for facts in inputs.values():
            end = barrier_position(facts.entries, n)
            before = facts.entries if end is None else facts.entries[:end]
            if facts.passed < n and any(
                e.segments and not any(e is known for known in given) for e in before
            ):
                yield n


def state_of_another_version() -> None:
    """Put into a checkpoint the operator state of the micro-batch before; die where they differ."""
    fate = Fate()
    freeze, accept = stage_state.StageState.freeze, stage_state.StageState.apply_published
    cut = stage_snapshot.StageSnapshotter.freeze
    first: dict[int, list[dict[str, bytes]]] = {}
    before: dict[int, list[dict[str, bytes]]] = {}
    at = threading.local()

    def remember(
        self: stage_state.StageState, batch: int, refs: Any, acks: list[Acknowledgement]
    ) -> None:
        before[id(self)] = [dict(state) for state in self._operator_state]
        first.setdefault(id(self), before[id(self)])
        accept(self, batch, refs, acks)

    def noted(self: stage_snapshot.StageSnapshotter, order: stage_snapshot.SnapshotRequest) -> Any:
        at.checkpoint = order.checkpoint
        return cut(self, order)

    def stale(self: stage_state.StageState) -> Any:
        frozen = freeze(self)
        old = before.get(id(self), frozen.operator_state)
        # For a subtask without state, empty state makes no difference.
        states = zip(old, frozen.operator_state, first.get(id(self), old), strict=True)
        if any(stale not in (right, empty) for stale, right, empty in states):
            fate.harm(at.checkpoint)
        return dataclasses.replace(frozen, operator_state=old)

    fate.decide(decide_alignment)
    stage_snapshot.StageSnapshotter.freeze = noted  # type: ignore[method-assign,assignment]
    stage_state.StageState.apply_published = remember  # type: ignore[method-assign,assignment]
    stage_state.StageState.freeze = stale  # type: ignore[method-assign]


def forget_what_was_in_flight() -> None:
    """Begin again without the records that a barrier had overtaken."""
    StateRestorer._channels = lambda *_: {}  # type: ignore[method-assign]


def what_was_in_flight_in_another_order() -> None:
    """Give the records that a barrier had overtaken back with the last ones first."""
    in_order = StateRestorer._channels

    def backwards(self: StateRestorer, snapshot: Snapshot) -> dict[ChannelId, list[Entry]]:
        return {channel: entries[::-1] for channel, entries in in_order(self, snapshot).items()}

    StateRestorer._channels = backwards  # type: ignore[method-assign]


def record_only_what_is_there() -> None:
    """Take an input for recorded though its barrier, and what it overtakes, are still to come."""
    fate = Fate()
    recorded: dict[CheckpointId, list[Entry]] = {}

    def is_complete(self: InFlightData) -> bool:
        known = [entry for overtaken in self.inputs.values() for entry in overtaken.entries]
        recorded.setdefault(self.checkpoint, known)
        return True

    def watched(inputs: Inputs, live: Live, most: int, last: CheckpointId) -> AlignmentDecision:
        if len(inputs) > 1:
            for late in _late(inputs, recorded):
                fate.harm(late)
        return decide_alignment(inputs, live, most, last)

    fate.decide(watched)
    setattr(InFlightData, "is_complete", property(is_complete))  # noqa: B010


def at_least_once_instead() -> None:
    """Hold no input at a barrier, and record nothing either."""
    fate = Fate()
    at_least_once = BarrierHandling.AT_LEAST_ONCE
    CheckpointStateMachine._barrier_handling = lambda *_: at_least_once  # type: ignore[method-assign]

    def watched(inputs: Inputs, live: Live, most: int, last: CheckpointId) -> AlignmentDecision:
        cut = decide_alignment(inputs, live, most, last)
        for n in (n for n in live if n > last):
            for channel, count in cut.take.items():
                facts = inputs[channel]
                if facts.passed >= n and any(e.segments for e in facts.entries[:count]):
                    fate.harm(n)
        return cut

    fate.decide(watched)


BROKEN: dict[str, Callable[[], None]] = {
    rule.__name__: rule
    for rule in (
        commit_before_completion,
        no_commit_on_restore,
        no_rewind,
        rewind_too_far,
        leaky_gate,
        state_of_another_version,
    )
}
"""What is wrong however barriers pass."""

BROKEN_BARRIERS: dict[str, Callable[[], None]] = {
    rule.__name__: rule for rule in (record_only_what_is_there, at_least_once_instead)
}
"""What is wrong where barriers overtake; each dies of it."""

BROKEN_RESTORES: dict[str, Callable[[], None]] = {
    rule.__name__: rule for rule in (forget_what_was_in_flight, what_was_in_flight_in_another_order)
}
"""What is wrong where records in flight are given back."""


def break_as_told(environment: Mapping[str, str]) -> None:
    """Break what the environment names, if anything."""
    name = environment.get(BREAK)
    if name:
        {**BROKEN, **BROKEN_BARRIERS, **BROKEN_RESTORES}[name]()
