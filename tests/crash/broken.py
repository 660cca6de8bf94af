"""Engines broken on purpose, in one rule each: what the judge must notice.

`PENSTOCK_TEST_BREAK` names the one a driver of the killed job shall run with.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from penstock.channel.log import Entry
from penstock.checkpoint.commits import CommitLane
from penstock.checkpoint.coordinator import Coordinator
from penstock.checkpoint.cut import Cut, InputFacts, Passing, awaited, decide_cut
from penstock.checkpoint.in_flight import InFlight
from penstock.connectors.part_files import PartFilePublisher
from penstock.connectors.source import SourceEnumerator
from penstock.ids import ChannelId, CheckpointId
from penstock.job import inputs as stage_inputs
from penstock.job import stage_state
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


def leaky_gate() -> None:
    """Pass a barrier on as soon as the first input brings it; die once that has done harm."""
    passed: set[CheckpointId] = set()
    dying: list[threading.Thread] = []

    def leaky(
        inputs: Mapping[ChannelId, InputFacts],
        live: Mapping[CheckpointId, Passing],
        most: int,
        last: CheckpointId,
    ) -> Cut:
        if len(inputs) < 2:
            return decide_cut(inputs, live, most, last)
        if any(_comes_late(facts.entries, passed) for facts in inputs.values()) and not dying:
            # The checkpoint has time to complete, and no later one is to hide what is wrong in it.
            dying.append(threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGKILL)))
            dying[0].start()
        if dying:
            return Cut({})
        target = awaited(inputs, {n: how for n, how in live.items() if n > last})
        cut = decide_cut(inputs, live, most, last)
        if target is None or cut.barrier is not None or not cut.held:
            return cut
        passed.add(target)
        return Cut(dict.fromkeys(cut.held, 1), target)

    setattr(stage_inputs, "decide_cut", leaky)  # noqa: B010 - mypy calls it private


def _comes_late(entries: Sequence[Entry], passed: Collection[CheckpointId]) -> bool:
    """Whether data lies before a barrier whose checkpoint was cut without it."""
    kinds = [entry.checkpoint in passed for entry in entries]
    return any(kinds) and any(entry.segments for entry in entries[: kinds.index(True)])


def state_of_another_version() -> None:
    """Put into a checkpoint the operator state of the micro-batch before."""
    freeze, accept = stage_state.StageState.freeze, stage_state.StageState.accept
    before: dict[int, list[dict[str, bytes]]] = {}

    def remember(
        self: stage_state.StageState, batch: int, refs: Any, acks: list[Acknowledgement]
    ) -> None:
        before[id(self)] = [dict(state) for state in self._operator_state]
        accept(self, batch, refs, acks)

    def stale(self: stage_state.StageState) -> Any:
        frozen = freeze(self)
        old = before.get(id(self), frozen.operator_state)
        return stage_state.FrozenState(frozen.version, frozen.keyed, frozen.snapshots, old)

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
    setattr(InFlight, "is_complete", property(lambda _: True))  # noqa: B010


def at_least_once_instead() -> None:
    """Hold no input at a barrier, and record nothing either."""
    Coordinator._passing = lambda *_: Passing.TRACKED  # type: ignore[method-assign]


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

BROKEN_IN_FLIGHT: dict[str, Callable[[], None]] = {
    rule.__name__: rule
    for rule in (
        forget_what_was_in_flight,
        what_was_in_flight_in_another_order,
        record_only_what_is_there,
        at_least_once_instead,
    )
}
"""What is wrong where barriers overtake."""


def break_as_told(environment: Mapping[str, str]) -> None:
    """Break what the environment names, if anything."""
    name = environment.get(BREAK)
    if name:
        {**BROKEN, **BROKEN_IN_FLIGHT}[name]()
