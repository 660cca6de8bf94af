"""The cut as a model: any small job, at any pace, through aborts, ends and crashes.

Stages keep the records they have seen and hand them on; sources number their records. So what a
stage must hold at a checkpoint follows from where the sources stood in it, and from nothing else.
Logs and the decision are the real ones; coordinator and loops are as small as they can be.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.channel.log import (
    END_OF_INPUT,
    Bounds,
    ChannelLog,
    Entry,
    EntryKind,
    barrier,
    entries_to_take,
)
from penstock.channel.segment import Segment, Slice
from penstock.checkpoint.cut import Cut, InputFacts, awaited, decide_cut
from penstock.ids import ChannelId, CheckpointId

Record = tuple[int, int]
"""A source and the number of the record there."""

DecideCut = Callable[
    [Mapping[ChannelId, InputFacts], Collection[CheckpointId], int],
    Cut,
]


@dataclass(frozen=True)
class Shape:
    """A job: how many sources, and per further stage which stages it reads."""

    sources: int
    inputs: tuple[tuple[int, ...], ...]

    def paths(self, source: int) -> list[int]:
        """Per stage, on how many ways a record of a source comes to it."""
        ways = [int(stage == source) for stage in range(self.sources)]
        for producers in self.inputs:
            ways.append(sum(ways[p] for p in producers))
        return ways


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    sources = draw(st.integers(1, 3))
    inputs = []
    for stage in range(sources, sources + draw(st.integers(1, 3))):
        producers = st.lists(st.integers(0, stage - 1), min_size=1, max_size=3)
        inputs.append(tuple(draw(producers)))
    return Shape(sources, tuple(inputs))


@dataclass
class Stage:
    """One stage in one attempt."""

    inputs: dict[ChannelId, ChannelLog]
    decide: DecideCut
    outputs: list[ChannelLog] = field(default_factory=list)
    seen: Counter[Record] = field(default_factory=Counter)
    position: int = 0
    """Of a source: the number of its next record."""
    sent: int = 0
    """Of a source: its last barrier."""
    has_ended: bool = False


@dataclass
class Checkpoint:
    """What all stages were at a cut."""

    seen: dict[int, Counter[Record]] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Frozen:
    """What a stage froze at a barrier, on its way to the coordinator."""

    checkpoint: CheckpointId
    stage: int
    seen: Counter[Record]
    position: int


class Job:
    """The job through all its attempts."""

    def __init__(self, shape: Shape, bound: int, make_decide: Callable[[], DecideCut]) -> None:
        self.shape = shape
        self._bound = bound
        self._make_decide = make_decide
        self._ids = itertools.count(1)
        self._payload: dict[str, list[Record]] = {}
        self.ends: dict[int, int] = {}
        """How many records a source has, once that is decided; a fact of the world outside."""
        self.completed = Checkpoint(
            {s: Counter() for s in range(self.size)}, dict.fromkeys(range(shape.sources), 0)
        )
        self.number_completed = 0
        self.restore()

    @property
    def size(self) -> int:
        return self.shape.sources + len(self.shape.inputs)

    def restore(self) -> None:
        """Begin an attempt: state and positions of the newest checkpoint, empty channels."""
        self.live: dict[CheckpointId, Checkpoint] = {}
        self.underway: list[Frozen] = []
        self.stages = [Stage({}, self._make_decide()) for _ in range(self.size)]
        channels = itertools.count()
        for stage, producers in enumerate(self.shape.inputs, self.shape.sources):
            for producer in producers:
                log = ChannelLog(Bounds(self._bound, 10**9))
                self.stages[stage].inputs[ChannelId(next(channels))] = log
                self.stages[producer].outputs.append(log)
        for i, stage_now in enumerate(self.stages):
            stage_now.seen = Counter(self.completed.seen[i])
            stage_now.position = self.completed.positions.get(i, 0)

    # -- the coordinator --------------------------------------------------------------------

    def trigger(self) -> CheckpointId:
        checkpoint = CheckpointId(next(self._ids))
        self.live[checkpoint] = Checkpoint()
        return checkpoint

    def abort(self, checkpoint: CheckpointId) -> None:
        del self.live[checkpoint]

    def acknowledge(self, frozen: Frozen) -> None:
        self.underway.remove(frozen)
        checkpoint = self.live.get(frozen.checkpoint)
        if checkpoint is None:
            return
        checkpoint.seen[frozen.stage] = frozen.seen
        if frozen.stage < self.shape.sources:
            checkpoint.positions[frozen.stage] = frozen.position
        if len(checkpoint.seen) == self.size:
            self.check(checkpoint)
            self.completed = checkpoint
            self.number_completed += 1
            for older in [n for n in self.live if n <= frozen.checkpoint]:
                del self.live[older]

    def check(self, checkpoint: Checkpoint) -> None:
        """Every record is before the cut at all stages it reaches, or behind it at all."""
        for source, position in checkpoint.positions.items():
            for stage, ways in enumerate(self.shape.paths(source)):
                mine = {n: c for (s, n), c in checkpoint.seen[stage].items() if s == source}
                before = dict.fromkeys(range(position), ways) if ways else {}
                assert mine == before, f"no cut: source {source} at {position}, stage {stage}"

    # -- the loops --------------------------------------------------------------------------

    def emit(self, source: int, records: int) -> None:
        stage = self.stages[source]
        if stage.has_ended or _is_full(stage):
            return
        end = stage.position + records
        if source in self.ends:
            end = min(end, self.ends[source])
        self._publish(stage, [(source, n) for n in range(stage.position, end)])
        stage.position = end
        if self.ends.get(source) == end:
            self._end(stage)

    def end(self, source: int) -> None:
        """Let a source have no more records than it has shown so far in any attempt."""
        self.ends.setdefault(source, self.stages[source].position)

    def run(self, stage_id: int, most: int, *, aborts: bool = False) -> bool:
        """Run a micro-batch of a stage, if it can; with `aborts` its checkpoint ends meanwhile."""
        stage = self.stages[stage_id]
        if stage_id < self.shape.sources:
            due = min((n for n in self.live if n > stage.sent), default=None)
            if due is not None:
                stage.sent = due
                self._freeze(stage_id, due, aborts=aborts)
            return due is not None
        facts = {c: InputFacts(log.pending(), log.has_ended) for c, log in stage.inputs.items()}
        cut = stage.decide(facts, list(self.live), most)
        taken = {c: facts[c].entries[:count] for c, count in cut.take.items()}
        records = [r for part in taken.values() for e in part for r in self._records(e)]
        if not taken or (records and _is_full(stage)):
            return False
        self._publish(stage, records)
        for channel, count in cut.take.items():
            stage.inputs[channel].consume(count)
        if cut.end_of_input:
            self._end(stage)
        if cut.barrier is not None:
            self._freeze(stage_id, cut.barrier, aborts=aborts)
        return True

    def _freeze(self, stage_id: int, checkpoint: CheckpointId, *, aborts: bool) -> None:
        stage = self.stages[stage_id]
        if aborts:
            self.live.pop(checkpoint, None)
        frozen = Frozen(checkpoint, stage_id, Counter(stage.seen), stage.position)
        for log in stage.outputs:
            log.append(barrier(checkpoint))
        self.underway.append(frozen)

    def _publish(self, stage: Stage, records: list[Record]) -> None:
        stage.seen.update(records)
        if not records:
            return
        for log in stage.outputs:
            name = f"s{len(self._payload)}"
            self._payload[name] = records
            piece = Slice(0, 1, len(records), 0)
            log.append(Entry(EntryKind.DATA, (Segment(name, 1, [[piece]]),)))

    def _end(self, stage: Stage) -> None:
        assert not stage.has_ended, "the end is told twice"
        assert all(log.has_ended for log in stage.inputs.values()), "an input has not ended"
        stage.has_ended = True
        for log in stage.outputs:
            log.append(END_OF_INPUT)

    def _records(self, entry: Entry) -> list[Record]:
        return [r for segment in entry.segments for r in self._payload[segment.name]]

    def drain(self) -> None:
        """Bring the job to its end, and check that nothing was lost or doubled."""
        for source in range(self.shape.sources):
            self.end(source)
        for _ in range(1000):
            for source in range(self.shape.sources):
                self.emit(source, 5)
            moved = [self.run(stage, 5) for stage in range(self.size)]
            for frozen in list(self.underway):
                self.acknowledge(frozen)
            if not any(moved) and all(s.has_ended for s in self.stages):
                break
        assert all(s.has_ended for s in self.stages), "the job does not come to its end"
        last = self.trigger()
        while any(self.run(stage, 5) for stage in range(self.size)):
            pass
        for frozen in list(self.underway):
            self.acknowledge(frozen)
        assert last not in self.live, "the last checkpoint does not complete"
        assert self.completed.positions == self.ends
        for i, stage in enumerate(self.stages):
            assert stage.seen == self.completed.seen[i]


def _is_full(stage: Stage) -> bool:
    return any(log.is_full() for log in stage.outputs)


class CutModel(RuleBasedStateMachine):
    """All that can happen to a job, in any order."""

    make_decide: Callable[[], DecideCut] = staticmethod(lambda: decide_cut)

    @initialize(shape=shapes(), bound=st.integers(1, 12))
    def start(self, shape: Shape, bound: int) -> None:
        self.job = Job(shape, bound, type(self).make_decide)

    @rule(source=st.integers(0, 2), records=st.integers(1, 4))
    def emit(self, source: int, records: int) -> None:
        self.job.emit(source % self.job.shape.sources, records)

    @rule(stage=st.integers(0, 5), most=st.integers(1, 6))
    def run_one(self, stage: int, most: int) -> None:
        self.job.run(stage % self.job.size, most)

    @precondition(lambda self: len(self.job.live) < 3)
    @rule()
    def trigger(self) -> None:
        self.job.trigger()

    @precondition(lambda self: self.job.underway)
    @rule(answers=st.lists(st.integers(0, 5), min_size=1, max_size=12))
    def acknowledge(self, answers: list[int]) -> None:
        # Stages answer in any order, one and the same stage in the order of its barriers.
        for which in answers:
            underway = self.job.underway
            if underway:
                stage = underway[which % len(underway)].stage
                self.job.acknowledge(next(f for f in underway if f.stage == stage))

    @rule(
        paces=st.lists(st.permutations(range(6)), min_size=1, max_size=5),
        most=st.integers(1, 6),
        triggers=st.booleans(),
    )
    def go_on(self, paces: list[list[int]], most: int, triggers: bool) -> None:
        if triggers and len(self.job.live) < 3:
            self.job.trigger()
        for pace in paces:
            for stage in pace:
                self.job.emit(stage % self.job.shape.sources, most % 3 + 1)
                self.job.run(stage % self.job.size, most)
        for frozen in list(self.job.underway):
            self.job.acknowledge(frozen)

    @precondition(lambda self: self.job.live)
    @rule(
        mishap=st.sampled_from(["abort", "abort meanwhile", "end", "crash"]),
        which=st.integers(0, 5),
    )
    def fail(self, mishap: str, which: int) -> None:
        live = sorted(self.job.live)
        match mishap:
            case "abort":
                self.job.abort(live[which % len(live)])
            case "abort meanwhile":
                self.job.run(which % self.job.size, 3, aborts=True)
            case "end":
                self.job.end(which % self.job.shape.sources)
            case "crash":
                self.job.restore()

    def teardown(self) -> None:
        if hasattr(self, "job"):
            self.job.drain()


TestCut = CutModel.TestCase
TestCut.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# -- the model can fail -------------------------------------------------------------------------


class NoHolding:
    """Lets every input go on behind its barrier: good enough for at-least-once."""

    def __init__(self) -> None:
        self._passed: dict[ChannelId, int] = {}

    def __call__(
        self,
        inputs: Mapping[ChannelId, InputFacts],
        live: Collection[CheckpointId],
        max_records: int,
    ) -> Cut:
        before = min(self._passed.get(c, 0) for c in inputs)
        take = {c: entries_to_take(f.entries, max_records) for c, f in inputs.items()}
        for channel, facts in inputs.items():
            for entry in facts.entries[: take[channel]]:
                self._passed[channel] = max(self._passed.get(channel, 0), entry.checkpoint or 0)
        now = CheckpointId(min(self._passed.get(c, 0) for c in inputs))
        proper = decide_cut(inputs, (), max_records)
        return Cut(proper.take, now if now > before and now in live else None, proper.end_of_input)


def release_before_the_freeze(
    inputs: Mapping[ChannelId, InputFacts], live: Collection[CheckpointId], max_records: int
) -> Cut:
    """Let the inputs go once all barriers are in, in the micro-batch that is to be frozen."""
    proper = decide_cut(inputs, live, max_records)
    if proper.barrier is None:
        return proper
    take = {
        c: proper.take[c] + entries_to_take(_up_to_barrier(f.entries[proper.take[c] :]), 3)
        for c, f in inputs.items()
    }
    return Cut(take, proper.barrier, proper.end_of_input)


def _up_to_barrier(entries: Any) -> list[Entry]:
    return list(itertools.takewhile(lambda e: e.kind is EntryKind.DATA, entries))


def cut_where_the_first_barrier_is(
    inputs: Mapping[ChannelId, InputFacts], live: Collection[CheckpointId], max_records: int
) -> Cut:
    """Take the first barrier for all of them; the others' are passed over later."""
    target = awaited(inputs, live)
    alone = {
        c: InputFacts(f.entries, f.has_ended)
        for c, f in inputs.items()
        if any(e.checkpoint == target for e in f.entries)
    }
    if target is None or len(alone) == len(inputs):
        return decide_cut(inputs, live, max_records)
    return decide_cut(alone, live, max_records)


@pytest.mark.parametrize(
    "make_decide",
    [
        NoHolding,
        lambda: release_before_the_freeze,
        lambda: cut_where_the_first_barrier_is,
    ],
    ids=["no holding", "release before the freeze", "first barrier"],
)
def test_a_broken_gate_is_caught(make_decide: Callable[[], DecideCut]) -> None:
    broken = type("BrokenCut", (CutModel,), {"make_decide": staticmethod(make_decide)})
    quick = settings(
        max_examples=300,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(AssertionError, match="no cut"):
        run_state_machine_as_test(broken, settings=quick)
