"""Where the next micro-batch of a stage ends on each of its inputs.

This is the alignment of barriers, as one pure function over one reading of the facts. An input
is held at barrier n by taking nothing behind it; the micro-batch that reaches n on every input
ends there, and only when it is published and its state frozen does the caller consume the
barriers and so release the inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.channel.log import Entry, EntryKind, entries_to_take
from penstock.ids import ChannelId, CheckpointId


@dataclass(frozen=True, slots=True)
class InputFacts:
    """One input of a stage: what waits there, and whether its end was consumed before."""

    entries: Sequence[Entry]
    has_ended: bool = False
    most: int | None = None
    """Most entries with data one micro-batch may take."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The ends of all inputs of one micro-batch."""

    take: Mapping[ChannelId, int]
    """Per input, how many entries go into the micro-batch, barriers and ends among them."""
    barrier: CheckpointId | None = None
    """The checkpoint this micro-batch ends at."""
    end_of_input: bool = False
    """Whether with this micro-batch, and not before, all data has been seen."""
    held: Mapping[ChannelId, CheckpointId] = field(default_factory=dict)
    """The inputs that wait at a barrier for the others."""


def decide_cut(
    inputs: Mapping[ChannelId, InputFacts], live: Collection[CheckpointId], max_records: int
) -> Cut:
    """Decide what the next micro-batch takes; an empty `take` means nothing can be taken now.

    `live` are the checkpoints neither completed nor aborted: a barrier of any other is passed
    over and never forwarded. An input that shows m first will never bring a barrier n < m, so
    then n is passed over on all inputs.
    """
    target = awaited(inputs, live)
    take: dict[ChannelId, int] = {}
    held: dict[ChannelId, CheckpointId] = {}
    reached = target is not None
    for channel, facts in inputs.items():
        stop = _position(facts.entries, target)
        before = facts.entries if stop is None else facts.entries[:stop]
        count = entries_to_take(before, max_records, facts.most)
        if stop == count == 0 and target is not None:
            held[channel] = target
        reached = reached and stop is not None and count == stop
        take[channel] = count
    if reached:
        take = {channel: count + 1 for channel, count in take.items()}
        held = {}
    return Cut(
        {channel: count for channel, count in take.items() if count},
        target if reached else None,
        _ends(inputs, take),
        held,
    )


def awaited(
    inputs: Mapping[ChannelId, InputFacts], live: Collection[CheckpointId]
) -> CheckpointId | None:
    """Return the checkpoint the inputs are aligned for, None if no barrier has come."""
    target: CheckpointId | None = None
    while True:
        first = [_first(facts.entries, live, target) for facts in inputs.values()]
        highest = max((b for b in first if b is not None), default=None)
        if highest == target:
            return target
        target = highest


def _first(
    entries: Sequence[Entry], live: Collection[CheckpointId], least: CheckpointId | None
) -> CheckpointId | None:
    for entry in entries:
        n = entry.checkpoint
        if n is not None and n in live and (least is None or n >= least):
            return n
    return None


def _position(entries: Sequence[Entry], target: CheckpointId | None) -> int | None:
    if target is None:
        return None
    return next((i for i, e in enumerate(entries) if e.checkpoint == target), None)


def _ends(inputs: Mapping[ChannelId, InputFacts], take: Mapping[ChannelId, int]) -> bool:
    ends = [
        any(e.kind is EntryKind.END_OF_INPUT for e in facts.entries[: take[channel]])
        for channel, facts in inputs.items()
    ]
    return any(ends) and all(
        now or facts.has_ended for now, facts in zip(ends, inputs.values(), strict=True)
    )
