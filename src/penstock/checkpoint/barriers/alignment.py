"""Decides barrier alignment: where the next micro-batch of a stage ends on each of its inputs.

Barriers exist only in the channel logs on the driver; a task at most learns from its instruction
that its micro-batch ends at one. An input is a whole channel, not one per upstream subtask as in
Flink: the subtasks of a producer publish a micro-batch together, so one barrier is enough.

`decide_alignment` is a pure function. With aligned barriers an input is blocked at
barrier n: nothing after it is taken. The micro-batch that reaches n on every input ends there, and
only when it is published and its state frozen does the caller consume the barriers and so unblock
the inputs. At-least-once blocks nothing: inputs continue after n, and the snapshot is taken where
the last input has brought n. An unaligned stage takes its snapshot as soon as n is visible on any
input: the data before n becomes part of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from penstock.channel.log import Entry, EntryKind, entries_to_take
from penstock.ids import ChannelId, CheckpointId

NO_BARRIER = CheckpointId(0)
"""Lower than the id of every checkpoint."""


class BarrierHandling(Enum):
    """How stages handle the barriers of one checkpoint; the values are persisted."""

    ALIGNED = "aligned"
    """An input is blocked at its barrier until all have arrived: later data is not in the state."""
    AT_LEAST_ONCE = "tracked"
    """No input is blocked, as with Flink's CheckpointBarrierTracker: the state may contain data
    after the barrier, which is read again."""
    UNALIGNED = "unaligned"
    """The barrier overtakes the data before it, which becomes part of the checkpoint."""

    @property
    def label(self) -> str:
        """The name to show: the stored value of at-least-once is older than its name."""
        return "at-least-once" if self is BarrierHandling.AT_LEAST_ONCE else self.value


@dataclass(frozen=True, slots=True)
class InputFacts:
    """One input of a stage: the entries that wait, and what was consumed before."""

    entries: Sequence[Entry]
    has_ended: bool = False
    """Whether its end was consumed."""
    max_entries: int | None = None
    """How many entries with data one micro-batch may take."""
    passed: CheckpointId = NO_BARRIER
    """The highest barrier consumed."""


@dataclass(frozen=True, slots=True)
class AlignmentDecision:
    """Where one micro-batch ends on every input."""

    take: Mapping[ChannelId, int]
    """Per input, how many entries it takes, barriers and ends of input included."""
    barrier: CheckpointId | None = None
    """The checkpoint whose snapshot follows this micro-batch."""
    end_of_input: bool = False
    """Whether all data is processed with this micro-batch, and not before."""
    blocked: Mapping[ChannelId, CheckpointId] = field(default_factory=dict)
    """The inputs that are blocked at a barrier until the others have it, too."""
    overtakes: bool = False
    """Whether the barrier overtakes what waits: nothing is taken, and all data before the barrier
    is in flight."""


def decide_alignment(
    inputs: Mapping[ChannelId, InputFacts],
    live: Mapping[CheckpointId, BarrierHandling],
    max_records: int,
    passed: CheckpointId = NO_BARRIER,
) -> AlignmentDecision:
    """Decide what the next micro-batch takes.

    An empty `take` without a barrier means that nothing can be taken now. `live` are the
    checkpoints neither completed nor aborted, `passed` is the last one of this stage's snapshots:
    all other barriers are skipped and never forwarded. An input that shows m first will never
    bring a barrier n < m, so then n is skipped on all inputs.
    """
    ahead = {n: how for n, how in live.items() if n > passed}
    target = awaited_barrier(inputs, ahead)
    if target is not None and ahead[target] is BarrierHandling.UNALIGNED:
        return AlignmentDecision({}, target, overtakes=True)
    if target is not None and ahead[target] is BarrierHandling.AT_LEAST_ONCE:
        return _at_least_once(inputs, ahead, target, max_records)
    return _aligned(inputs, target, max_records)


def awaited_barrier(
    inputs: Mapping[ChannelId, InputFacts], ahead: Mapping[CheckpointId, BarrierHandling]
) -> CheckpointId | None:
    """Return the checkpoint whose barrier has arrived on some input, None if none has.

    If there are several, it is the lowest that all inputs have brought or may still bring. An
    input that has consumed n cannot be aligned at n again: the state may contain data after it.
    Only at-least-once counts n as brought then, while another input still has to bring it: with
    the last one the snapshot would have been taken.
    """
    for n in sorted(ahead):
        first = [
            n if facts.passed >= n else _first(facts.entries, ahead, n) for facts in inputs.values()
        ]
        consumed = [facts.passed >= n for facts in inputs.values()]
        is_gone = any(b is not None and b > n for b in first) or (
            all(consumed) if ahead[n] is BarrierHandling.AT_LEAST_ONCE else any(consumed)
        )
        if n in first and not is_gone:
            return n
    return None


def _aligned(
    inputs: Mapping[ChannelId, InputFacts], target: CheckpointId | None, max_records: int
) -> AlignmentDecision:
    take: dict[ChannelId, int] = {}
    blocked: dict[ChannelId, CheckpointId] = {}
    reached = target is not None
    for channel, facts in inputs.items():
        stop = barrier_position(facts.entries, target)
        count = _up_to(facts, stop, max_records)
        if stop == count == 0 and target is not None:
            blocked[channel] = target
        reached = reached and stop is not None and count == stop
        take[channel] = count
    if reached:
        take = {channel: count + 1 for channel, count in take.items()}
        blocked = {}
    return AlignmentDecision(_some(take), target if reached else None, _ends(inputs, take), blocked)


def _at_least_once(
    inputs: Mapping[ChannelId, InputFacts],
    ahead: Mapping[CheckpointId, BarrierHandling],
    target: CheckpointId,
    max_records: int,
) -> AlignmentDecision:
    take: dict[ChannelId, int] = {}
    blocked: dict[ChannelId, CheckpointId] = {}
    reached = True
    for channel, facts in inputs.items():
        has_passed = facts.passed >= target
        wanted = _first(facts.entries, ahead, target) if has_passed else target
        stop = barrier_position(facts.entries, wanted)
        count = _up_to(facts, stop, max_records)
        if stop == count and wanted is not None:
            # A savepoint's barrier blocks even here, while an older checkpoint goes first.
            if ahead[wanted] is BarrierHandling.AT_LEAST_ONCE:
                count += 1
                has_passed = True
            elif count == 0:
                blocked[channel] = wanted
        reached = reached and has_passed
        take[channel] = count
    return AlignmentDecision(_some(take), target if reached else None, _ends(inputs, take), blocked)


def _up_to(facts: InputFacts, stop: int | None, max_records: int) -> int:
    before = facts.entries if stop is None else facts.entries[:stop]
    return entries_to_take(before, max_records, facts.max_entries)


def _some(take: Mapping[ChannelId, int]) -> dict[ChannelId, int]:
    return {channel: count for channel, count in take.items() if count}


def _first(
    entries: Sequence[Entry], ahead: Mapping[CheckpointId, BarrierHandling], least: CheckpointId
) -> CheckpointId | None:
    for entry in entries:
        n = entry.checkpoint
        if n is not None and n in ahead and n >= least:
            return n
    return None


def barrier_position(entries: Sequence[Entry], checkpoint: CheckpointId | None) -> int | None:
    """Return the index of a checkpoint's barrier among some entries, None if it is not there."""
    if checkpoint is None:
        return None
    return next((i for i, e in enumerate(entries) if e.checkpoint == checkpoint), None)


def _ends(inputs: Mapping[ChannelId, InputFacts], take: Mapping[ChannelId, int]) -> bool:
    ends = [
        any(e.kind is EntryKind.END_OF_INPUT for e in facts.entries[: take[channel]])
        for channel, facts in inputs.items()
    ]
    return any(ends) and all(
        now or facts.has_ended for now, facts in zip(ends, inputs.values(), strict=True)
    )
