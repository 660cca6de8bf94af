"""Where the next micro-batch of a stage ends on each of its inputs.

This is how a stage passes barriers, as one pure function over one reading of the facts. A stage
that aligns holds an input at barrier n by taking nothing behind it; the micro-batch that reaches
n on every input ends there, and only when it is published and its state frozen does the caller
consume the barriers and so release the inputs. A stage that tracks holds nothing: it takes on
from where n was, and its cut is where the last input has brought n. A stage that lets n overtake
cuts as soon as n can be seen anywhere: what lies before n belongs to the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from penstock.channel.log import Entry, EntryKind, entries_to_take
from penstock.ids import ChannelId, CheckpointId

NONE_PASSED = CheckpointId(0)
"""Lower than every checkpoint there is."""


class Passing(Enum):
    """How the stages of a job pass the barriers of one checkpoint."""

    ALIGNED = "aligned"
    """An input waits at its barrier for the others: what is behind it is not in the state."""
    TRACKED = "tracked"
    """No input waits: some of what is behind the barrier may be in the state, and comes again."""
    UNALIGNED = "unaligned"
    """The barrier overtakes what waits before it, and that becomes part of the checkpoint."""


@dataclass(frozen=True, slots=True)
class InputFacts:
    """One input of a stage: what waits there, and what of it was consumed before."""

    entries: Sequence[Entry]
    has_ended: bool = False
    """Whether its end was consumed."""
    most: int | None = None
    """Most entries with data one micro-batch may take."""
    passed: CheckpointId = NONE_PASSED
    """The highest barrier consumed."""


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
    overtakes: bool = False
    """Whether the barrier has overtaken what waits: nothing is taken, and all of it, up to the
    barrier in each input, is in flight."""


def decide_cut(
    inputs: Mapping[ChannelId, InputFacts],
    live: Mapping[CheckpointId, Passing],
    max_records: int,
    passed: CheckpointId = NONE_PASSED,
) -> Cut:
    """Decide what the next micro-batch takes.

    An empty `take` without a barrier means that nothing can be taken now. `live` are the
    checkpoints neither completed nor aborted, `passed` is the last one this stage took part in:
    any other barrier is passed over and never forwarded. An input that shows m first will never
    bring a barrier n < m, so then n is passed over on all inputs.
    """
    ahead = {n: how for n, how in live.items() if n > passed}
    target = awaited(inputs, ahead)
    if target is not None and ahead[target] is Passing.UNALIGNED:
        return Cut({}, target, overtakes=True)
    if target is not None and ahead[target] is Passing.TRACKED:
        return _tracked(inputs, ahead, target, max_records)
    return _aligned(inputs, target, max_records)


def awaited(
    inputs: Mapping[ChannelId, InputFacts], ahead: Mapping[CheckpointId, Passing]
) -> CheckpointId | None:
    """Return the checkpoint whose barrier some input has brought, None if none has.

    Where there are several it is the lowest that all inputs have brought or may still bring. An
    input that has let n go by cannot give it back: what was behind it may be in the state by now.
    Only who tracks counts it as brought, as long as another is still to come: with the last one
    there would have been the cut.
    """
    for n in sorted(ahead):
        first = [
            n if facts.passed >= n else _first(facts.entries, ahead, n) for facts in inputs.values()
        ]
        went_by = [facts.passed >= n for facts in inputs.values()]
        is_gone = any(b is not None and b > n for b in first) or (
            all(went_by) if ahead[n] is Passing.TRACKED else any(went_by)
        )
        if n in first and not is_gone:
            return n
    return None


def _aligned(
    inputs: Mapping[ChannelId, InputFacts], target: CheckpointId | None, max_records: int
) -> Cut:
    take: dict[ChannelId, int] = {}
    held: dict[ChannelId, CheckpointId] = {}
    reached = target is not None
    for channel, facts in inputs.items():
        stop = position(facts.entries, target)
        count = _up_to(facts, stop, max_records)
        if stop == count == 0 and target is not None:
            held[channel] = target
        reached = reached and stop is not None and count == stop
        take[channel] = count
    if reached:
        take = {channel: count + 1 for channel, count in take.items()}
        held = {}
    return Cut(_some(take), target if reached else None, _ends(inputs, take), held)


def _tracked(
    inputs: Mapping[ChannelId, InputFacts],
    ahead: Mapping[CheckpointId, Passing],
    target: CheckpointId,
    max_records: int,
) -> Cut:
    take: dict[ChannelId, int] = {}
    held: dict[ChannelId, CheckpointId] = {}
    reached = True
    for channel, facts in inputs.items():
        has_passed = facts.passed >= target
        wanted = _first(facts.entries, ahead, target) if has_passed else target
        stop = position(facts.entries, wanted)
        count = _up_to(facts, stop, max_records)
        if stop == count and wanted is not None:
            # A savepoint's barrier holds even here: one that began before it has to go first.
            if ahead[wanted] is Passing.TRACKED:
                count += 1
                has_passed = True
            elif count == 0:
                held[channel] = wanted
        reached = reached and has_passed
        take[channel] = count
    return Cut(_some(take), target if reached else None, _ends(inputs, take), held)


def _up_to(facts: InputFacts, stop: int | None, max_records: int) -> int:
    before = facts.entries if stop is None else facts.entries[:stop]
    return entries_to_take(before, max_records, facts.most)


def _some(take: Mapping[ChannelId, int]) -> dict[ChannelId, int]:
    return {channel: count for channel, count in take.items() if count}


def _first(
    entries: Sequence[Entry], ahead: Mapping[CheckpointId, Passing], least: CheckpointId
) -> CheckpointId | None:
    for entry in entries:
        n = entry.checkpoint
        if n is not None and n in ahead and n >= least:
            return n
    return None


def position(entries: Sequence[Entry], checkpoint: CheckpointId | None) -> int | None:
    """Return where a checkpoint's barrier stands among some entries, None if it does not."""
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
