"""Alignment as a model: whatever happens to a job, in any order, in every mode."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

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

from penstock.channel.log import Entry, EntryKind, entries_to_take
from penstock.checkpoint.barriers.alignment import (
    NO_BARRIER,
    AlignmentDecision,
    BarrierHandling,
    InputFacts,
    awaited_barrier,
    decide_alignment,
)
from penstock.checkpoint.barriers.in_flight_data import InFlightData
from penstock.ids import ChannelId, CheckpointId
from tests.unit.checkpoint.barriers.simulated_job import Frozen, Job, Mode, Record, Shape

Inputs = Mapping[ChannelId, InputFacts]
Live = Mapping[CheckpointId, BarrierHandling]
PLENTY = 100


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    sources = draw(st.integers(1, 3))
    inputs = []
    for stage in range(sources, sources + draw(st.integers(1, 3))):
        producers = st.lists(st.integers(0, stage - 1), min_size=1, max_size=3)
        inputs.append(tuple(draw(producers)))
    return Shape(sources, tuple(inputs))


class CutModel(RuleBasedStateMachine):
    """All that can happen to a job, in any order."""

    mode = Mode.ALIGNED
    job_type: type[Job] = Job

    @initialize(shape=shapes(), bound=st.integers(1, 12))
    def start(self, shape: Shape, bound: int) -> None:
        self.job = self.job_type(shape, self.mode, bound)

    @rule(source=st.integers(0, 2), records=st.integers(1, 4))
    def emit(self, source: int, records: int) -> None:
        self.job.emit(source % self.job.shape.sources, records)

    @rule(stage=st.integers(0, 5), most=st.integers(1, 6))
    def run_one(self, stage: int, most: int) -> None:
        self.job.run(stage % self.job.shape.size, most)

    @rule(source=st.integers(0, 2), stage=st.integers(0, 2), savepoint=st.booleans())
    def look_too_early(self, source: int, stage: int, savepoint: bool) -> None:
        """Let a barrier come, and a record after it, after the live checkpoints were read."""
        job = self.job
        late = job.shape.sources + stage % len(job.shape.inputs)
        job.look(late)
        self.trigger(savepoint)
        job.run(source % job.shape.sources, 1)
        job.emit(source % job.shape.sources, 1)
        job.run(late, 6)

    @rule(savepoint=st.booleans())
    def trigger(self, savepoint: bool) -> None:
        """Trigger, if there is room for it."""
        if self.job.may_trigger(savepoint=savepoint):
            self.job.trigger(savepoint=savepoint)

    @rule(fast=st.integers(0, 2), records=st.integers(1, 3), savepoint=st.booleans())
    def one_is_fast(self, fast: int, records: int, savepoint: bool) -> None:
        """Let one source inject its barrier while the others delay theirs for too long."""
        sources = range(self.job.shape.sources)
        self.trigger(savepoint)
        self.job.run(fast % len(sources), 1)
        for _ in range(2):
            for source in sources:
                if source != fast % len(sources):
                    self.job.emit(source, records)
            for stage in range(len(sources), self.job.shape.size):
                self.job.run(stage, 6)
            self.job.switch()

    @precondition(lambda self: BarrierHandling.ALIGNED in self.job.live.values())
    @rule(stage=st.integers(0, 2))
    def switch(self, stage: int) -> None:
        self.job.switch()
        self.job.run(self.job.shape.sources + stage % len(self.job.shape.inputs), 1)

    @precondition(lambda self: self.job.underway)
    @rule(answers=st.lists(st.integers(0, 5), min_size=1, max_size=12))
    def acknowledge(self, answers: list[int]) -> None:
        # Stages answer in any order, one and the same stage in the order of its barriers.
        for which in answers:
            whole = [f for f in self.job.underway if f.is_whole]
            if whole:
                stage = whole[which % len(whole)].stage
                self.job.acknowledge(next(f for f in whole if f.stage == stage))

    @rule(
        paces=st.lists(st.permutations(range(6)), min_size=1, max_size=5),
        most=st.integers(1, 6),
        triggers=st.booleans(),
    )
    def go_on(self, paces: list[list[int]], most: int, triggers: bool) -> None:
        if triggers:
            self.trigger(False)
        for pace in paces:
            for stage in pace:
                self.job.emit(stage % self.job.shape.sources, most % 3 + 1)
                self.job.run(stage % self.job.shape.size, most)
        self.job.acknowledge_all()

    @rule(source=st.integers(0, 2))
    def end(self, source: int) -> None:
        self.job.end(source % self.job.shape.sources)

    @precondition(lambda self: self.job.live)
    @rule(which=st.integers(0, 5), meanwhile=st.booleans())
    def abort(self, which: int, meanwhile: bool) -> None:
        if meanwhile:
            self.job.run(which % self.job.shape.size, 3, aborts=True)
        else:
            live = sorted(self.job.live)
            self.job.abort(live[which % len(live)])

    @precondition(lambda self: self.job.number_completed)
    @rule(goes_back=st.booleans())
    def crash(self, goes_back: bool) -> None:
        self.job.restore(self.job.savepoint if goes_back else None)

    def teardown(self) -> None:
        # Also called when a step has failed: that is the failure to report.
        if hasattr(self, "job") and sys.exc_info()[0] is None:
            self.job.drain()


class AtLeastOnceModel(CutModel):
    mode = Mode.AT_LEAST_ONCE


class UnalignedModel(CutModel):
    mode = Mode.UNALIGNED


class SwitchingModel(CutModel):
    mode = Mode.SWITCHING


TestAligned = CutModel.TestCase
TestAtLeastOnce = AtLeastOnceModel.TestCase
TestUnaligned = UnalignedModel.TestCase
TestSwitching = SwitchingModel.TestCase
TestAligned.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestAtLeastOnce.settings = TestAligned.settings
TestUnaligned.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSwitching.settings = TestUnaligned.settings


# -- records in flight, once more ---------------------------------------------------------------


def overtake(job: Job) -> None:
    """Let a source send two records and a barrier, which overtakes them at the next stage."""
    job.emit(0, 2)
    job.trigger()
    job.run(0, PLENTY)
    job.run(1, PLENTY)
    job.acknowledge_all()


def test_a_checkpoint_during_the_replay_holds_restored_and_new_in_flight_data() -> None:
    job, route = Job(Shape(1, ((0,),)), Mode.UNALIGNED), (0, (ChannelId(0),))
    overtake(job)
    assert job.completed.in_flight == {ChannelId(0): [[(route, 0), (route, 1)]]}
    job.restore()
    overtake(job)
    assert job.completed.in_flight == {
        ChannelId(0): [[(route, 0), (route, 1)], [(route, 2), (route, 3)]]
    }
    assert job.completed.seen[1].upto[route] == 0
    job.restore()
    job.drain()
    assert job.stages[1].seen.upto[route] == 4


def test_a_savepoint_waits_until_the_replay_is_drained() -> None:
    job, route = Job(Shape(1, ((0,),)), Mode.UNALIGNED), (0, (ChannelId(0),))
    overtake(job)
    job.restore()
    job.trigger(savepoint=True)
    job.run(0, PLENTY)
    job.run(1, PLENTY)
    job.acknowledge_all()
    assert job.savepoint is not None
    assert not job.savepoint.in_flight
    assert job.savepoint.seen[1].upto[route] == 2


# -- what at-least-once means -------------------------------------------------------------------

JOIN = Shape(2, ((0, 1),))


def behind_one_barrier(mode: Mode) -> Job:
    """Let one input continue after its barrier while the other's is late; then crash."""
    job = Job(JOIN, mode)
    job.emit(0, 1)
    job.trigger()
    job.run(0, PLENTY)
    job.run(2, PLENTY)
    job.emit(0, 1)
    job.run(2, PLENTY)
    job.run(1, PLENTY)
    while job.run(2, PLENTY):
        job.acknowledge_all()
    assert job.number_completed == 1
    job.restore()
    job.emit(0, 1)
    job.run(2, PLENTY)
    return job


def test_after_a_crash_at_least_once_has_seen_some_records_again() -> None:
    job = behind_one_barrier(Mode.AT_LEAST_ONCE)
    assert job.stages[2].seen.again == Counter({((0, (ChannelId(0),)), 1): 1})
    job.drain()


@pytest.mark.parametrize("mode", [Mode.ALIGNED, Mode.UNALIGNED, Mode.SWITCHING])
def test_after_the_same_crash_exactly_once_has_not(mode: Mode) -> None:
    job = behind_one_barrier(mode)
    assert not job.stages[2].seen.again
    job.drain()


# -- the model can fail -------------------------------------------------------------------------


class BlocksNothing(Job):
    """Good enough for at-least-once; and not even there for savepoints."""

    def decide(
        self, inputs: Inputs, live: Live, most: int, passed: CheckpointId
    ) -> AlignmentDecision:
        return decide_alignment(
            inputs, dict.fromkeys(live, BarrierHandling.AT_LEAST_ONCE), most, passed
        )


class UnblocksBeforeTheSnapshot(Job):
    """Lets the inputs go once all barriers are in, in the micro-batch that is to be frozen."""

    def decide(
        self, inputs: Inputs, live: Live, most: int, passed: CheckpointId
    ) -> AlignmentDecision:
        decision = decide_alignment(inputs, live, most, passed)
        if decision.barrier is None:
            return decision
        take = {
            c: decision.take[c] + entries_to_take(_up_to_barrier(f.entries[decision.take[c] :]), 3)
            for c, f in inputs.items()
        }
        return AlignmentDecision(take, decision.barrier, decision.end_of_input)


class SnapshotsAtTheFirstBarrier(Job):
    """Takes the first barrier for all of them; the others' are passed over later."""

    def decide(
        self, inputs: Inputs, live: Live, most: int, passed: CheckpointId
    ) -> AlignmentDecision:
        target = awaited_barrier(inputs, {n: how for n, how in live.items() if n > passed})
        alone = {c: f for c, f in inputs.items() if any(e.checkpoint == target for e in f.entries)}
        if target is None or len(alone) == len(inputs):
            return decide_alignment(inputs, live, most, passed)
        return decide_alignment(alone, live, most, passed)


class CountsConsumedBarriers(Job):
    """Takes a snapshot at a barrier though one input has continued after it."""

    def decide(
        self, inputs: Inputs, live: Live, most: int, passed: CheckpointId
    ) -> AlignmentDecision:
        for n in sorted(live):
            if n > passed and any(f.passed >= n for f in inputs.values()):
                return AlignmentDecision({}, n, overtakes=True)
        return decide_alignment(inputs, live, most, passed)


class SnapshotsAgainWhereItWasOvertaken(Job):
    """Takes part once more when it reaches the barrier."""

    def decide(
        self, inputs: Inputs, live: Live, most: int, passed: CheckpointId
    ) -> AlignmentDecision:
        again = {n: BarrierHandling.ALIGNED for n in live if n <= passed}
        return decide_alignment(inputs, {**live, **again}, most, NO_BARRIER)


class OvertakesWithSavepoints(Job):
    """Makes no difference between checkpoints and savepoints."""

    def decide(
        self, inputs: Inputs, live: Live, most: int, passed: CheckpointId
    ) -> AlignmentDecision:
        return decide_alignment(
            inputs, dict.fromkeys(live, BarrierHandling.UNALIGNED), most, passed
        )


class OnlyWhatWaits(InFlightData):
    """Forgets that an input without the barrier is still recorded."""

    is_complete = True

    def observe(self, channel: ChannelId, position: int, waiting: Sequence[Entry]) -> None:
        super().observe(channel, position, waiting)
        self._inputs[channel].is_closed = True


class ForgetsOpenInputs(Job):
    def record(self, checkpoint: CheckpointId, stands: dict[ChannelId, int]) -> InFlightData:
        return OnlyWhatWaits(checkpoint, stands)


class BehindTheBarrierToo(InFlightData):
    """Does not stop at the barrier, but at the next entry with data."""

    def observe(self, channel: ChannelId, position: int, waiting: Sequence[Entry]) -> None:
        super().observe(channel, position, waiting)
        mine = self._inputs[channel]
        behind = _up_to_barrier(waiting[mine.end - position + 1 :]) if mine.is_closed else []
        if mine.end >= position and not any(mine.entries[-1:] == [e] for e in behind):
            mine.entries += behind[:1]


class RecordsTooMuch(Job):
    def record(self, checkpoint: CheckpointId, stands: dict[ChannelId, int]) -> InFlightData:
        return BehindTheBarrierToo(checkpoint, stands)


class HoldsNoFiles(InFlightData):
    def contains(self, channel: ChannelId, entry: Entry) -> bool:
        return False


class DeletesTooEarly(Job):
    """Deletes what is consumed, though a recording still needs it."""

    def record(self, checkpoint: CheckpointId, stands: dict[ChannelId, int]) -> InFlightData:
        return HoldsNoFiles(checkpoint, stands)


class DropsWhatWasInFlight(Job):
    def replay(self, entries: list[list[Record]]) -> list[list[Record]]:
        return []


class ReplaysTwice(Job):
    def replay(self, entries: list[list[Record]]) -> list[list[Record]]:
        return entries + entries


class ReplaysOutOfOrder(Job):
    def replay(self, entries: list[list[Record]]) -> list[list[Record]]:
        return entries[::-1]


class StoresLatePositions(Job):
    """Takes the source's position when the checkpoint is put together, not at the barrier."""

    def position_in(self, frozen: Frozen) -> int:
        return self.stages[frozen.stage].position


def _up_to_barrier(entries: Sequence[Entry]) -> list[Entry]:
    return list(itertools.takewhile(lambda e: e.kind is EntryKind.DATA, entries))


BROKEN = [
    (Mode.ALIGNED, BlocksNothing, "inconsistent"),
    (Mode.ALIGNED, UnblocksBeforeTheSnapshot, "inconsistent"),
    (Mode.ALIGNED, SnapshotsAtTheFirstBarrier, "inconsistent|has not ended"),
    (Mode.AT_LEAST_ONCE, BlocksNothing, "inconsistent"),
    (Mode.AT_LEAST_ONCE, StoresLatePositions, "inconsistent"),
    (Mode.UNALIGNED, CountsConsumedBarriers, "inconsistent|a savepoint holds"),
    (Mode.UNALIGNED, SnapshotsAgainWhereItWasOvertaken, "inconsistent"),
    (Mode.UNALIGNED, OvertakesWithSavepoints, "a savepoint holds"),
    (Mode.UNALIGNED, ForgetsOpenInputs, "inconsistent"),
    (Mode.UNALIGNED, RecordsTooMuch, "inconsistent"),
    (Mode.UNALIGNED, DeletesTooEarly, "deleted"),
    (Mode.UNALIGNED, DropsWhatWasInFlight, "lost|inconsistent"),
    (Mode.UNALIGNED, ReplaysTwice, "doubled|inconsistent"),
    (Mode.UNALIGNED, ReplaysOutOfOrder, "lost|inconsistent"),
    (Mode.SWITCHING, BlocksNothing, "inconsistent"),
    (Mode.SWITCHING, RecordsTooMuch, "inconsistent"),
]


@pytest.mark.parametrize(
    ("mode", "broken", "what"), BROKEN, ids=[f"{m.value}-{t.__name__}" for m, t, _ in BROKEN]
)
def test_a_broken_alignment_is_caught(mode: Mode, broken: type[Job], what: str) -> None:
    model = type("BrokenModel", (CutModel,), {"mode": mode, "job_type": broken})
    quick = settings(
        max_examples=1000,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(AssertionError, match=what):
        run_state_machine_as_test(model, settings=quick)
