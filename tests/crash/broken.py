"""Engines broken on purpose, in one rule each: what the judge must notice.

`PENSTOCK_TEST_BREAK` names the one a driver of the killed job shall run with.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from penstock.channel.log import Entry
from penstock.checkpoint.commits import CommitLane
from penstock.checkpoint.coordinator import Coordinator
from penstock.checkpoint.cut import Cut, InputFacts, Passing, awaited, decide_cut, position
from penstock.checkpoint.in_flight import InFlight
from penstock.checkpoint.pending import PendingCheckpoint
from penstock.connectors.part_files import PartFilePublisher
from penstock.connectors.source import SourceEnumerator
from penstock.ids import ChannelId, CheckpointId
from penstock.job import inputs as stage_inputs
from penstock.job import stage_snapshot, stage_state
from penstock.job.restore import Snapshot, StateRestorer
from penstock.task.messages import Acknowledgement
from penstock.testing import scripted_source

BREAK = "PENSTOCK_TEST_BREAK"


def commit_before_completion() -> None:
    """Show files at the barrier, before the checkpoint counts; die when some are to be seen."""
    make_pending, shown_so_far = PartFilePublisher._make_pending, itertools.count(1)

    def shown(self: PartFilePublisher, part: Any) -> Any:
        pending = make_pending(self, part)
        os.link(pending.pending, pending.final)
        if next(shown_so_far) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return pending

    PartFilePublisher._make_pending = shown  # type: ignore[method-assign]


def no_commit_on_restore() -> None:
    """Leave alone what the restored checkpoint holds and nobody has committed."""
    commit = CommitLane.commit
    restored: list[CheckpointId] = []

    def first_is_left_out(self: CommitLane, checkpoint: CheckpointId, owed: Any) -> None:
        if checkpoint and not restored and not self._lane._threads:
            restored.append(checkpoint)
            return
        commit(self, checkpoint, owed)

    CommitLane.commit = first_is_left_out  # type: ignore[method-assign]


def no_rewind() -> None:
    """Let sources begin a little behind where the checkpoint left them."""
    _start_elsewhere(lambda position: position + 5)


def rewind_too_far() -> None:
    """Let sources begin a little before where the checkpoint left them."""
    _start_elsewhere(lambda position: max(0, position - 5))


def _start_elsewhere(move: Callable[[int], int]) -> None:
    enumerator: type[SourceEnumerator] = scripted_source._Enumerator
    start = enumerator.start

    def elsewhere(self: SourceEnumerator, positions: Mapping[str, int]) -> None:
        start(self, {split: move(position) for split, position in positions.items()})

    enumerator.start = elsewhere  # type: ignore[method-assign]


Inputs = Mapping[ChannelId, InputFacts]
Live = Mapping[CheckpointId, Passing]


class Fate:
    """Lets the process die when a checkpoint counts in which something is wrong.

    Stages that are behind its barrier stand still, so that no later one hides what is wrong.
    """

    def __init__(self) -> None:
        self._harmed: CheckpointId | None = None
        self._completed = CheckpointId(0)
        complete = Coordinator._complete

        def completed(coordinator: Coordinator, pending: PendingCheckpoint) -> None:
            complete(coordinator, pending)
            self._completed = pending.id
            self._die_if_due()

        Coordinator._complete = completed  # type: ignore[method-assign,assignment]

    def harm(self, checkpoint: CheckpointId) -> None:
        """Learn that something is wrong in a checkpoint."""
        if self._harmed is None:
            self._harmed = checkpoint
            self._die_if_due()

    def decide(self, decide: Callable[[Inputs, Live, int, CheckpointId], Cut]) -> None:
        """Let stages decide in another way where their next micro-batch ends."""

        def until_harmed(inputs: Inputs, live: Live, most: int, last: CheckpointId) -> Cut:
            cut = decide(inputs, live, most, last)
            return Cut({}) if self._harmed is not None and last >= self._harmed else cut

        setattr(stage_inputs, "decide_cut", until_harmed)  # noqa: B010 - mypy calls it private

    def _die_if_due(self) -> None:
        if self._harmed is not None and self._completed >= self._harmed:
            os.kill(os.getpid(), signal.SIGKILL)


def leaky_gate() -> None:
    """Pass a barrier on as soon as the first input brings it."""
    fate = Fate()
    passed: dict[CheckpointId, list[Entry]] = {}

    def leaky(inputs: Inputs, live: Live, most: int, last: CheckpointId) -> Cut:
        if len(inputs) < 2:
            return decide_cut(inputs, live, most, last)
        for late in _late(inputs, passed):
            fate.harm(late)
        target = awaited(inputs, {n: how for n, how in live.items() if n > last})
        cut = decide_cut(inputs, live, most, last)
        if target is None or cut.barrier is not None or not cut.held:
            return cut
        passed[target] = []
        return Cut(dict.fromkeys(cut.held, 1), target)

    fate.decide(leaky)


def _late(inputs: Inputs, passed: Mapping[CheckpointId, Sequence[Entry]]) -> Iterator[CheckpointId]:
    """The checkpoints that were cut without some data before their barriers, but for the given."""
    for n, given in passed.items():
        for facts in inputs.values():
            end = position(facts.entries, n)
            before = facts.entries if end is None else facts.entries[:end]
            if facts.passed < n and any(
                e.segments and not any(e is known for known in given) for e in before
            ):
                yield n


def state_of_another_version() -> None:
    """Put into a checkpoint the operator state of the micro-batch before; die where they differ."""
    fate = Fate()
    freeze, accept = stage_state.StageState.freeze, stage_state.StageState.accept
    cut = stage_snapshot.StageSnapshots.cut
    first: dict[int, list[dict[str, bytes]]] = {}
    before: dict[int, list[dict[str, bytes]]] = {}
    at = threading.local()

    def remember(
        self: stage_state.StageState, batch: int, refs: Any, acks: list[Acknowledgement]
    ) -> None:
        before[id(self)] = [dict(state) for state in self._operator_state]
        first.setdefault(id(self), before[id(self)])
        accept(self, batch, refs, acks)

    def noted(self: stage_snapshot.StageSnapshots, order: stage_snapshot.CutOrder) -> Any:
        at.checkpoint = order.checkpoint
        return cut(self, order)

    def stale(self: stage_state.StageState) -> Any:
        frozen = freeze(self)
        old = before.get(id(self), frozen.operator_state)
        # A subtask that begins with nothing begins anew, and nobody can tell.
        told = zip(old, frozen.operator_state, first.get(id(self), old), strict=True)
        if any(stale not in (right, empty) for stale, right, empty in told):
            fate.harm(at.checkpoint)
        return stage_state.FrozenState(frozen.version, frozen.keyed, frozen.snapshots, old)

    fate.decide(decide_cut)
    stage_snapshot.StageSnapshots.cut = noted  # type: ignore[method-assign]
    stage_state.StageState.accept = remember  # type: ignore[method-assign,assignment]
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

    def is_complete(self: InFlight) -> bool:
        known = [entry for overtaken in self.inputs.values() for entry in overtaken.entries]
        recorded.setdefault(self.checkpoint, known)
        return True

    def watched(inputs: Inputs, live: Live, most: int, last: CheckpointId) -> Cut:
        if len(inputs) > 1:
            for late in _late(inputs, recorded):
                fate.harm(late)
        return decide_cut(inputs, live, most, last)

    fate.decide(watched)
    setattr(InFlight, "is_complete", property(is_complete))  # noqa: B010


def at_least_once_instead() -> None:
    """Hold no input at a barrier, and record nothing either."""
    fate = Fate()
    Coordinator._passing = lambda *_: Passing.TRACKED  # type: ignore[method-assign]

    def watched(inputs: Inputs, live: Live, most: int, last: CheckpointId) -> Cut:
        cut = decide_cut(inputs, live, most, last)
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
