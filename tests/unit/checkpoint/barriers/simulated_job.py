"""A simulated job for barriers: any graph, at any pace, with aborts, ends, switches and crashes.

Sources number their records, stages forward what they get, and every record remembers the channels
it came through. So what a stage must have processed at a checkpoint follows from the positions of
the sources and the in-flight data, and from nothing else. Logs, the alignment decision and the
in-flight data are the real ones; coordinator and loops are as small as they can be.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from penstock.channel.log import END_OF_INPUT, Bounds, ChannelLog, Entry, EntryKind, barrier
from penstock.channel.segment import Segment, Slice
from penstock.checkpoint.barriers.alignment import (
    NO_BARRIER,
    AlignmentDecision,
    BarrierHandling,
    InputFacts,
    decide_alignment,
)
from penstock.checkpoint.barriers.in_flight_data import InFlightData
from penstock.ids import ChannelId, CheckpointId

Route = tuple[int, tuple[ChannelId, ...]]
"""A source and a route from it: the channels one after the other."""
Record = tuple[Route, int]
"""A route, and the number of the record at its source."""


class Mode(Enum):
    """How a job takes its checkpoints; savepoints are aligned in all of them."""

    ALIGNED = "aligned"
    AT_LEAST_ONCE = "at least once"
    UNALIGNED = "unaligned"
    SWITCHING = "aligned until it takes too long"

    @property
    def barrier_handling(self) -> BarrierHandling:
        match self:
            case Mode.AT_LEAST_ONCE:
                return BarrierHandling.AT_LEAST_ONCE
            case Mode.UNALIGNED:
                return BarrierHandling.UNALIGNED
            case _:
                return BarrierHandling.ALIGNED

    @property
    def overtakes(self) -> bool:
        return self in (Mode.UNALIGNED, Mode.SWITCHING)


@dataclass(frozen=True)
class Shape:
    """A job: how many sources, and per further stage which stages it reads."""

    sources: int
    inputs: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        return self.sources + len(self.inputs)

    @cached_property
    def channels(self) -> list[tuple[ChannelId, int, int]]:
        """All channels, with producer and consumer."""
        ids = itertools.count()
        return [
            (ChannelId(next(ids)), producer, consumer)
            for consumer, producers in enumerate(self.inputs, self.sources)
            for producer in producers
        ]

    @cached_property
    def routes(self) -> list[list[Route]]:
        """Per stage, the ways on which records come to it."""
        routes: list[list[Route]] = [[(source, ())] for source in range(self.sources)]
        routes += [[] for _ in self.inputs]
        for channel, producer, consumer in self.channels:
            routes[consumer] += [(source, (*path, channel)) for source, path in routes[producer]]
        return routes

    @cached_property
    def chained(self) -> set[int]:
        """The stages with one input each all the way up: there alignment has nothing to do."""
        alone = set(range(self.sources))
        for stage, producers in enumerate(self.inputs, self.sources):
            if len(producers) == 1 and producers[0] in alone:
                alone.add(stage)
        return alone


@dataclass
class Seen:
    """What a stage has processed: per route everything up to a number, and some of it again."""

    upto: Counter[Route] = field(default_factory=Counter)
    again: Counter[Record] = field(default_factory=Counter)

    def copy(self) -> Seen:
        return Seen(self.upto.copy(), self.again.copy())


@dataclass
class Snapshot:
    """The state of all stages at a checkpoint, and the in-flight data."""

    is_savepoint: bool = False
    seen: dict[int, Seen] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    in_flight: dict[ChannelId, list[list[Record]]] = field(default_factory=dict)


@dataclass
class Stage:
    """One stage in one attempt."""

    inputs: dict[ChannelId, ChannelLog] = field(default_factory=dict)
    outputs: dict[ChannelId, ChannelLog] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)
    recordings: list[InFlightData] = field(default_factory=list)
    position: int = 0
    """Of a source: the number of its next record."""
    passed: CheckpointId = NO_BARRIER
    has_ended: bool = False
    known: dict[CheckpointId, BarrierHandling] | None = None
    """The live checkpoints, if they were read some time before the inputs."""

    @property
    def is_full(self) -> bool:
        return any(log.is_full() for log in self.outputs.values())


@dataclass(frozen=True)
class Frozen:
    """What a stage froze at a barrier, on its way to the coordinator."""

    checkpoint: CheckpointId
    stage: int
    seen: Seen
    position: int
    recording: InFlightData | None = None

    @property
    def is_whole(self) -> bool:
        return self.recording is None or self.recording.is_complete


class Job:
    """The job through all its attempts."""

    def __init__(self, shape: Shape, mode: Mode, bound: int = 12) -> None:
        self.shape = shape
        self.mode = mode
        self._bound = bound
        self._ids = itertools.count(1)
        self._names = itertools.count()
        self.ends: dict[int, int] = {}
        """How many records a source has, once that is decided; a fact of the world outside."""
        self._shown: Counter[int] = Counter()
        self.completed = Snapshot(
            seen={s: Seen() for s in range(self.shape.size)},
            positions=dict.fromkeys(range(shape.sources), 0),
        )
        self.savepoint: Snapshot | None = None
        self.number_completed = 0
        self.has_lagged = False
        """Whether a stage has decided by an old reading of the live checkpoints."""
        self.restore()

    # -- what a broken one does otherwise ---------------------------------------------------

    def decide(
        self,
        inputs: Mapping[ChannelId, InputFacts],
        live: Mapping[CheckpointId, BarrierHandling],
        most: int,
        passed: CheckpointId,
    ) -> AlignmentDecision:
        return decide_alignment(inputs, live, most, passed)

    def record(self, checkpoint: CheckpointId, stands: dict[ChannelId, int]) -> InFlightData:
        return InFlightData(checkpoint, stands)

    def replay(self, entries: list[list[Record]]) -> list[list[Record]]:
        return entries

    def position_in(self, frozen: Frozen) -> int:
        return frozen.position

    # -- attempts ---------------------------------------------------------------------------

    def restore(self, savepoint: Snapshot | None = None) -> None:
        """Begin an attempt: state and positions, then what was in flight, then new records."""
        # Who goes back turns away from all that came after.
        begin = self.completed = savepoint or self.completed
        self.may_double = self.mode is Mode.AT_LEAST_ONCE and not self._is_exact(begin)
        self.live: dict[CheckpointId, BarrierHandling] = {}
        self._collecting: dict[CheckpointId, Snapshot] = {}
        self.underway: list[Frozen] = []
        self._files: dict[str, list[Record]] = {}
        self.stages = [Stage() for _ in range(self.shape.size)]
        for channel, producer, consumer in self.shape.channels:
            log = ChannelLog(Bounds(self._bound, 10**9))
            self.stages[consumer].inputs[channel] = log
            self.stages[producer].outputs[channel] = log
            for records in self.replay(begin.in_flight.get(channel, [])):
                log.append(self._entry(records))
        for i, stage in enumerate(self.stages):
            stage.seen = begin.seen[i].copy()
            stage.position = begin.positions.get(i, 0)

    # -- the coordinator --------------------------------------------------------------------

    def may_trigger(self, *, savepoint: bool) -> bool:
        savepoints = sum(s.is_savepoint for s in self._collecting.values())
        if savepoint:
            return savepoints == 0
        return len(self.live) - savepoints < (1 if self.mode.overtakes else 3)

    def trigger(self, *, savepoint: bool = False) -> CheckpointId:
        checkpoint = CheckpointId(next(self._ids))
        self._collecting[checkpoint] = Snapshot(savepoint)
        self.live[checkpoint] = BarrierHandling.ALIGNED if savepoint else self.mode.barrier_handling
        return checkpoint

    def switch(self) -> None:
        """Let a checkpoint overtake that has waited too long."""
        for checkpoint, snapshot in self._collecting.items():
            if self.mode is Mode.SWITCHING and not snapshot.is_savepoint:
                self.live[checkpoint] = BarrierHandling.UNALIGNED

    def abort(self, checkpoint: CheckpointId) -> None:
        del self.live[checkpoint], self._collecting[checkpoint]

    def acknowledge_all(self) -> None:
        for frozen in [f for f in self.underway if f.is_whole]:
            self.acknowledge(frozen)

    def acknowledge(self, frozen: Frozen) -> None:
        self.underway.remove(frozen)
        in_flight = self._copy(frozen)
        snapshot = self._collecting.get(frozen.checkpoint)
        if snapshot is None:
            return
        assert frozen.stage not in snapshot.seen, "inconsistent: a stage has taken part twice"
        snapshot.seen[frozen.stage] = frozen.seen
        snapshot.in_flight.update(in_flight)
        if frozen.stage < self.shape.sources:
            snapshot.positions[frozen.stage] = self.position_in(frozen)
        if len(snapshot.seen) == self.shape.size:
            self._complete(frozen.checkpoint, snapshot)

    def _copy(self, frozen: Frozen) -> dict[ChannelId, list[list[Record]]]:
        recording = frozen.recording
        if recording is None:
            return {}
        inputs = recording.inputs
        copies = {c: [self._read(e) for e in found.entries] for c, found in inputs.items()}
        stage = self.stages[frozen.stage]
        stage.recordings = [r for r in stage.recordings if r is not recording]
        return copies

    def _complete(self, checkpoint: CheckpointId, snapshot: Snapshot) -> None:
        self.check(snapshot)
        del self.live[checkpoint], self._collecting[checkpoint]
        if snapshot.is_savepoint:
            self.savepoint = snapshot
            return
        self.completed = snapshot
        self.number_completed += 1
        for older, other in list(self._collecting.items()):
            if older < checkpoint and not other.is_savepoint:
                self.abort(older)

    # -- what must be true ------------------------------------------------------------------

    def check(self, snapshot: Snapshot) -> None:
        """Check that each record is before the snapshot at all stages it reaches, or after it.


        What is in flight is before the snapshot at the stages it has not reached yet.
        """
        if snapshot.is_savepoint:
            assert not any(snapshot.in_flight.values()), "a savepoint holds records in flight"
        may_differ = self.mode is Mode.AT_LEAST_ONCE
        if snapshot.is_savepoint and not self.may_double:
            may_differ = False
        for stage in range(self.shape.sources, self.shape.size):
            seen = snapshot.seen[stage]
            for route in self.shape.routes[stage]:
                upto, position = seen.upto[route], snapshot.positions[route[0]]
                where = f"stage {stage}, {route} up to {upto}, the source at {position}"
                if may_differ and stage not in self.shape.chained:
                    assert upto >= position, f"inconsistent: {where}"
                else:
                    coming = _in_flight(snapshot, route)
                    assert [*range(upto), *coming] == [*range(position)], f"inconsistent: {where}"

    def _is_exact(self, snapshot: Snapshot) -> bool:
        return all(
            snapshot.seen[stage].upto[route] == snapshot.positions[route[0]]
            and not snapshot.seen[stage].again
            for stage in range(self.shape.sources, self.shape.size)
            for route in self.shape.routes[stage]
        )

    def _see(self, stage_id: int, record: Record) -> None:
        route, number = record
        seen = self.stages[stage_id].seen
        assert number <= seen.upto[route], f"lost: {route} up to {number} at stage {stage_id}"
        if number == seen.upto[route]:
            seen.upto[route] += 1
            return
        assert self.may_double, f"doubled: {number} of {route} at stage {stage_id}"
        assert stage_id not in self.shape.chained, "doubled, although there is one input only"
        seen.again[record] += 1

    # -- the loops --------------------------------------------------------------------------

    def emit(self, source: int, records: int) -> None:
        stage = self.stages[source]
        if stage.has_ended or stage.is_full:
            return
        end = stage.position + records
        if source in self.ends:
            end = min(end, self.ends[source])
        self._publish(stage, [((source, ()), n) for n in range(stage.position, end)])
        stage.position = end
        self._shown[source] = max(self._shown[source], end)
        if self.ends.get(source) == end:
            self._end(stage)

    def end(self, source: int) -> None:
        """Let a source have no more records than it has shown so far in any attempt."""
        self.ends.setdefault(source, self._shown[source])

    def look(self, stage_id: int) -> None:
        """Let a stage read the live checkpoints, and wait a while before it reads its inputs."""
        if stage_id >= self.shape.sources:
            self.stages[stage_id].known = dict(self.live)

    def run(self, stage_id: int, most: int, *, aborts: bool = False) -> bool:
        """Run a micro-batch of a stage, if it can; with `aborts` its checkpoint ends meanwhile."""
        stage = self.stages[stage_id]
        if stage_id < self.shape.sources:
            due = min((n for n in self.live if n > stage.passed), default=None)
            if due is not None:
                self._freeze(stage_id, due, None, aborts=aborts)
            return due is not None
        live = dict(self.live) if stage.known is None else stage.known
        self.has_lagged = self.has_lagged or live != self.live
        stage.known = None
        facts = {
            c: InputFacts(log.pending(), log.has_ended, passed=log.passed)
            for c, log in stage.inputs.items()
        }
        self._observe(stage)
        decision = self.decide(facts, live, most, stage.passed)
        if decision.overtakes:
            assert decision.barrier is not None
            stands = {c: log.position for c, log in stage.inputs.items()}
            recording = self.record(decision.barrier, stands)
            stage.recordings.append(recording)
            self._observe(stage)
            self._freeze(stage_id, decision.barrier, recording, aborts=aborts)
            return True
        taken = {c: facts[c].entries[:count] for c, count in decision.take.items()}
        records = [r for part in taken.values() for e in part for r in self._read(e)]
        if (not taken and decision.barrier is None) or (records and stage.is_full):
            return False
        for record in records:
            self._see(stage_id, record)
        self._publish(stage, records)
        self._consume(stage, decision.take)
        if decision.end_of_input:
            self._end(stage)
        if decision.barrier is not None:
            self._freeze(stage_id, decision.barrier, None, aborts=aborts)
        return True

    def _observe(self, stage: Stage) -> None:
        for recording in stage.recordings:
            for channel, log in stage.inputs.items():
                recording.observe(channel, log.position, log.pending())

    def _consume(self, stage: Stage, take: Mapping[ChannelId, int]) -> None:
        for channel, count in take.items():
            for entry in stage.inputs[channel].consume(count):
                if not any(r.contains(channel, entry) for r in stage.recordings):
                    for segment in entry.segments:
                        del self._files[segment.name]

    def _freeze(
        self,
        stage_id: int,
        checkpoint: CheckpointId,
        recording: InFlightData | None,
        *,
        aborts: bool,
    ) -> None:
        stage = self.stages[stage_id]
        if aborts and checkpoint in self.live:
            self.abort(checkpoint)
        stage.passed = checkpoint
        seen = stage.seen.copy()
        self.underway.append(Frozen(checkpoint, stage_id, seen, stage.position, recording))
        for log in stage.outputs.values():
            log.append(barrier(checkpoint))

    def _publish(self, stage: Stage, records: Sequence[Record]) -> None:
        if records:
            for channel, log in stage.outputs.items():
                log.append(self._entry([((s, (*way, channel)), n) for (s, way), n in records]))

    def _entry(self, records: list[Record]) -> Entry:
        name = f"s{next(self._names)}"
        self._files[name] = records
        return Entry(EntryKind.DATA, (Segment(name, 1, [[Slice(0, 1, len(records), 0)]]),))

    def _read(self, entry: Entry) -> list[Record]:
        found = [self._files.get(segment.name) for segment in entry.segments]
        assert None not in found, "a segment is deleted that is still needed"
        return [r for records in found for r in records or ()]

    def _end(self, stage: Stage) -> None:
        assert not stage.has_ended, "the end is told twice"
        assert all(log.has_ended for log in stage.inputs.values()), "an input has not ended"
        stage.has_ended = True
        for log in stage.outputs.values():
            log.append(END_OF_INPUT)

    # -- the end ----------------------------------------------------------------------------

    def drain(self) -> None:
        """Bring the job to its end, and check that nothing was lost or doubled."""
        for source in range(self.shape.sources):
            self.end(source)
        self._work()
        while not all(s.has_ended for s in self.stages):
            # Who looked too early may have let a barrier go by: its checkpoint expires.
            assert self.live, "the job does not come to its end"
            assert self.has_lagged, "an input is held for ever"
            self._expire()
            self._work()
        assert self.has_lagged or not self.live, "a checkpoint does not complete"
        self._expire()
        last = self.trigger()
        self._work()
        assert last not in self.live, "the last checkpoint does not complete"
        assert self.completed.positions == self.ends
        assert not any(self.completed.in_flight.values())
        for i, stage in enumerate(self.stages):
            assert stage.seen == self.completed.seen[i]

    def _work(self) -> None:
        moved = True
        while moved:
            moved = False
            for source in range(self.shape.sources):
                before = self.stages[source].position
                self.emit(source, 5)
                moved = moved or self.stages[source].position > before
            for stage in range(self.shape.size):
                moved = self.run(stage, 5) or moved
            self.acknowledge_all()

    def _expire(self) -> None:
        for checkpoint in list(self.live):
            self.abort(checkpoint)


def _in_flight(snapshot: Snapshot, route: Route) -> list[int]:
    """Return the numbers of the records in flight on a route, the nearest first."""
    source, way = route
    return [
        number
        for length in range(len(way), 0, -1)
        for records in snapshot.in_flight.get(way[length - 1], [])
        for (s, passed), number in records
        if (s, passed) == (source, way[:length])
    ]
