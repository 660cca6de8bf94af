"""Event time on the driver: what each stage knows of it, and when timers are due.

Watermarks move between micro-batches. The tasks of one process its records at the watermark of the
one before, then go on to the least watermark of all inputs, and fire what is due. Where nothing is
due nothing runs: the driver keeps the new watermark and tells it to those behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from penstock.channel.log import Clock
from penstock.checkpoint.metadata import InputClock, OperatorTime
from penstock.common.event_time import MAX_WATERMARK, MIN_WATERMARK
from penstock.common.watermark_strategy import (
    WatermarkAlignment,
    WatermarkOutput,
    WatermarkStrategy,
)
from penstock.graph.job_graph import Node
from penstock.graph.plan import Channel, Stage
from penstock.ids import ChannelId, StageId
from penstock.job.asked_clock import AskedClock
from penstock.job.unit_generators import UnitGenerators
from penstock.recovery.channels import ChannelEnds
from penstock.task.messages import (
    Acknowledgement,
    GivenGenerator,
    NextTimers,
    TimeOrder,
    UnitTime,
)

__all__ = ["GroupTime", "MakerTime", "StageTime"]


@dataclass(slots=True)
class _Unit:
    watermark: int
    active: float
    """When it last brought something."""
    is_idle: bool = False
    """Whether its generator said so."""
    emitted: float = field(init=False)
    """When its generator was last asked for a watermark."""

    def __post_init__(self) -> None:
        self.emitted = self.active


class MakerTime:
    """The watermark of a step that makes watermarks: the least of its units.

    Its times are those of the stage's `AskedClock`.
    """

    def __init__(
        self,
        strategy: WatermarkStrategy,
        saved: OperatorTime,
        now: float,
        generators: UnitGenerators | None = None,
    ) -> None:
        timeout = strategy.idle_timeout
        self._timeout = None if timeout is None else timeout.to_millis() / 1000
        self._generators = generators
        self._units = {
            name: _Unit(watermark, now, name in saved.idle)
            for name, watermark in saved.units.items()
        }
        self._given = saved.given
        self._began = now

    @property
    def units(self) -> Collection[str]:
        """Those it waits for."""
        return self._units.keys()

    def observe(self, units: Iterable[UnitTime], now: float, version: str = "") -> None:
        """Learn what a task attempt has brought; of a unit in several subtasks the most counts."""
        for seen in units:
            unit = self._units.setdefault(seen.unit, _Unit(MIN_WATERMARK, now))
            unit.watermark = max(unit.watermark, seen.watermark)
            unit.active, unit.emitted, unit.is_idle = now, now, seen.is_idle
            if self._generators is not None and seen.generator is not None:
                self._generators.left(seen.unit, seen.generator, version)

    def expect(self, names: Iterable[str], now: float) -> None:
        """Wait for these units too, though they have brought nothing yet."""
        for name in names:
            self._units.setdefault(name, _Unit(MIN_WATERMARK, now))

    def forget(self, finished: Collection[str]) -> None:
        """Leave out units that will bring nothing more; the last ones say how far they came."""
        if finished and set(finished) >= self._units.keys():
            self._given = max(self._given, *(u.watermark for u in self._units.values()))
        for name in finished:
            self._units.pop(name, None)
            if self._generators is not None:
                self._generators.forget(name)

    def emit(self, interval: float, busy: Collection[str], now: float) -> None:
        """Ask generators of the user's own that were not asked for so long, but no busy ones.

        What the busy ones say, their tasks will tell.
        """
        if self._generators is None:
            return
        for name, unit in self._units.items():
            if name in busy or self._is_silent(unit, now) or now - unit.emitted < interval:
                continue
            output = WatermarkOutput()
            output.watermark, output.is_idle = unit.watermark, unit.is_idle
            self._generators.ask(name, output)
            unit.watermark, unit.is_idle, unit.emitted = output.watermark, output.is_idle, now

    def generators(self) -> dict[str, GivenGenerator]:
        """Return those of the user's own, as the next micro-batch goes on with them."""
        if self._generators is None:
            return {}
        return {
            name: replace(given, is_idle=name in self._units and self._units[name].is_idle)
            for name, given in self._generators.given().items()
        }

    def clock(self, now: float) -> Clock:
        """Return the watermark, and whether nobody shall wait for it."""
        active = [u.watermark for u in self._units.values() if not self._is_idle(u, now)]
        if active:
            self._given = max(self._given, min(active))
            return Clock(self._given)
        if self._units:
            return Clock(self._given, is_idle=True)
        is_silent = self._timeout is not None and now - self._began >= self._timeout
        return Clock(self._given, is_idle=is_silent)

    def idle_at(self, now: float) -> float | None:
        """Return when the next unit will have been silent for too long."""
        if self._timeout is None:
            return None
        since = [u.active for u in self._units.values() if not self._is_idle(u, now)]
        if not self._units and now - self._began < self._timeout:
            since = [self._began]
        return min(since) + self._timeout if since else None

    def emits_at(self, interval: float, now: float) -> float | None:
        """Return when the next generator of the user's own is to be asked."""
        if self._generators is None:
            return None
        emitted = [u.emitted for u in self._units.values() if not self._is_silent(u, now)]
        return min(emitted) + interval if emitted else None

    def saved(self) -> OperatorTime:
        """Return what a checkpoint keeps of it."""
        return OperatorTime(
            given=self._given,
            units={name: unit.watermark for name, unit in self._units.items()},
            idle=[name for name, unit in self._units.items() if unit.is_idle],
            generators={} if self._generators is None else self._generators.saved(),
        )

    def _is_idle(self, unit: _Unit, now: float) -> bool:
        return unit.is_idle or self._is_silent(unit, now)

    def _is_silent(self, unit: _Unit, now: float) -> bool:
        return self._timeout is not None and now - unit.active >= self._timeout


class InputTime:
    """The least watermark of a stage's inputs, of those that are not idle."""

    def __init__(
        self,
        channels: Iterable[ChannelId],
        saved: Mapping[ChannelId, Clock] | None = None,
        current: int = MIN_WATERMARK,
    ) -> None:
        """Go on from what inputs had said when it was `current` here."""
        saved = saved or {}
        self._clocks = {c: saved.get(c, Clock()) for c in channels}
        self._lagging = {c for c, k in saved.items() if not k.is_idle and k.watermark < current}
        """Back from being idle, and not yet where the others are."""

    @property
    def clocks(self) -> Mapping[ChannelId, Clock]:
        """What each input said last."""
        return self._clocks

    def observe(self, clocks: Mapping[ChannelId, Clock], current: int) -> Clock:
        """Learn what some inputs say; return what holds for all."""
        for channel, clock in clocks.items():
            before = self._clocks[channel]
            merged = Clock(max(before.watermark, clock.watermark), clock.is_idle)
            self._clocks[channel] = merged
            if before.is_idle and not merged.is_idle:
                self._lagging.add(channel)
        self._lagging = {
            c
            for c in self._lagging
            if not self._clocks[c].is_idle and self._clocks[c].watermark < current
        }
        active = {c: clock for c, clock in self._clocks.items() if not clock.is_idle}
        if not active:
            return Clock(max(c.watermark for c in self._clocks.values()), is_idle=True)
        counted = [c.watermark for name, c in active.items() if name not in self._lagging]
        return Clock(min(counted, default=current))


class StageTime:
    """What time it is in one stage."""

    def __init__(
        self,
        stage: Stage,
        saved: Mapping[str, OperatorTime],
        now: float,
        ends: Mapping[ChannelId, ChannelEnds],
    ) -> None:
        """Go on from what a snapshot has; `ends` are those of its inputs."""
        self.stage = stage
        self.is_restored = bool(saved)
        mine = saved.get(stage.head.uid, OperatorTime())
        self._ends = {c.id: ends[c.id] for c in stage.inputs}
        # Who goes on from behind the end of input has more to come.
        reached = mine.watermark if mine.watermark < MAX_WATERMARK else MIN_WATERMARK
        self.inputs = InputTime(self._ends, self._heard(mine.inputs), reached)
        self.clock = Clock(reached)
        """At the stage's first step."""
        first = NextTimers(mine.next_event_timer, mine.next_processing_timer)
        self.timers = [first] * stage.parallelism
        """Per subtask, when its first timers are due, or before that."""
        self._asked = AskedClock(now)
        self._makers = {
            node.id: _maker(node, _resumed(saved.get(node.uid), stage), now)
            for node in stage.nodes
            if node.watermarks is not None
        }
        if not stage.is_source:
            for maker in self._makers.values():
                maker.expect((f"#{i}" for i in range(stage.parallelism)), now)

    def _heard(self, saved: Iterable[InputClock]) -> dict[ChannelId, Clock]:
        found = {(c.producer, c.input, c.ordinal): Clock(c.watermark, c.is_idle) for c in saved}
        by_channel = {c: found.get(_same(ends)) for c, ends in self._ends.items()}
        return {c: clock for c, clock in by_channel.items() if clock is not None}

    @property
    def makes_time(self) -> bool:
        """Whether one of its steps makes watermarks."""
        return bool(self._makers)

    def behind(self, node: Node) -> Clock:
        """Return what time it is behind one of the steps."""
        maker = self.stage.time_maker(node, itself=True)
        if maker is None or self.clock.watermark == MAX_WATERMARK:
            return self.clock
        return self._makers[maker.id].clock(self._asked.reading)

    def aligned(self) -> dict[str, tuple[WatermarkAlignment, Clock]]:
        """Return the steps that keep pace with others, and how far each has come."""
        found = {}
        for node in self.stage.nodes:
            if node.watermarks is not None and node.watermarks.alignment is not None:
                clock = self.behind(node)
                found[str(node.uid)] = node.watermarks.alignment, clock
        return found

    def look(self, now: float, *, held: bool, asked: bool) -> None:
        """Learn whether its input may be read from now on, and whether somebody looked at it."""
        self._asked.look(now, held=held, asked=asked)

    def emit(self, interval: float, busy: Collection[str]) -> None:
        """Ask generators of the user's own that bring nothing for their watermarks."""
        for maker in self._makers.values():
            maker.emit(interval, busy, self._asked.reading)

    def order(self, watermark: int) -> TimeOrder:
        """Return what the tasks of a micro-batch are told."""
        return TimeOrder(
            before=self.clock.watermark,
            watermark=watermark,
            behind={
                node: maker.clock(self._asked.reading).watermark
                for node, maker in self._makers.items()
            },
            generators={n: found for n, m in self._makers.items() if (found := m.generators())},
        )

    def accept(self, acks: Sequence[Acknowledgement], now: float) -> None:
        """Learn what the tasks of a published micro-batch have seen."""
        self.timers = [ack.timers for ack in acks]
        for node, maker in self._makers.items():
            for ack in acks:
                maker.observe(ack.times.get(node, ()), self._asked.at(now), ack.name)

    def look_at(
        self, splits: Collection[str], is_finished: Callable[[str], bool], now: float
    ) -> None:
        """Learn which splits its source has: wait for those, not for what was read to its end."""
        for maker in self._makers.values():
            maker.expect(splits, self._asked.at(now))
            maker.forget([unit for unit in maker.units if is_finished(unit)])

    def is_event_due(self, watermark: int) -> bool:
        """Whether some timer fires at a watermark; one set for the past waits for the next."""
        if watermark <= self.clock.watermark:
            return False
        return any(t.event is not None and t.event <= watermark for t in self.timers)

    def next_processing(self) -> int | None:
        """Return when the first processing-time timer is due."""
        return min((t.processing for t in self.timers if t.processing is not None), default=None)

    def wakes_at(self, interval: float | None) -> float | None:
        """Return when something here becomes idle, or a generator is to be asked."""
        reading = self._asked.reading
        makers = self._makers.values()
        times = [maker.idle_at(reading) for maker in makers]
        if interval is not None:
            times += [maker.emits_at(interval, reading) for maker in makers]
        first = min((t for t in times if t is not None), default=None)
        return None if first is None else self._asked.when(first)

    def saved(self) -> dict[str, OperatorTime]:
        """Return what a checkpoint keeps, by operator uid."""
        head = self.stage.head
        makers = [n for n in self.stage.nodes if n.id in self._makers]
        kept = {str(node.uid): self._makers[node.id].saved() for node in makers}
        kept[head.uid] = replace(
            kept.get(head.uid, OperatorTime()),
            watermark=self.clock.watermark,
            next_event_timer=min(
                (t.event for t in self.timers if t.event is not None), default=None
            ),
            next_processing_timer=self.next_processing(),
            inputs=[
                InputClock(*_same(self._ends[c]), clock.watermark, clock.is_idle)
                for c, clock in self.inputs.clocks.items()
                # Who has come to the end says so again.
                if clock.watermark < MAX_WATERMARK
            ],
        )
        return kept


@dataclass(slots=True)
class GroupTime:
    """What time it is in the stages of a group.

    A stage that gets its records inside the group gets watermarks one micro-batch later: what they
    are is known when the tasks in front of it are through.
    """

    stages: Sequence[StageTime]
    """In topological order."""
    outputs: Sequence[Channel]
    """The channels to other groups."""
    interval: float | None = None
    """How often generators of the user's own are asked without records, None for never."""
    _told: dict[ChannelId, Clock] = field(default_factory=dict)

    def look(self, now: float, busy: Collection[str], *, held: bool, asked: bool) -> None:
        """Learn whether input may be read, and what of it will be, if somebody looked at it.

        Then those who bring nothing have their say. Not while input is held back: the records that
        wait would come late.
        """
        for time in self.stages:
            time.look(now, held=held, asked=asked)
            if self.interval is not None and asked and not held:
                time.emit(self.interval, busy)

    def plan(self, clocks: Mapping[ChannelId, Clock], *, end: bool) -> dict[StageId, Clock]:
        """Return how far each stage goes in a micro-batch, if these are the news of its input."""
        goals: dict[StageId, Clock] = {}
        head = self.stages[0]
        known = dict(clocks)
        for time in self.stages:
            stage = time.stage
            if end:
                goals[stage.id] = Clock(MAX_WATERMARK)
                continue
            if time is head and stage.is_source:
                goals[stage.id] = time.clock
                continue
            if time is not head:
                known = self._inner(stage)
            found = time.inputs.observe(known, time.clock.watermark)
            goals[stage.id] = Clock(
                max(time.clock.watermark, found.watermark), is_idle=found.is_idle
            )
        return goals

    def _inner(self, stage: Stage) -> dict[ChannelId, Clock]:
        by_stage = {time.stage.id: time for time in self.stages}
        return {c.id: _behind(by_stage[c.producer], c) for c in stage.inputs}

    def is_due(self, goals: Mapping[StageId, Clock], now: float) -> bool:
        """Whether some timer fires where stages go that far."""
        return any(
            time.is_event_due(goals[time.stage.id].watermark)
            or ((at := time.next_processing()) is not None and at <= now * 1000)
            for time in self.stages
        )

    def orders(self, goals: Mapping[StageId, Clock]) -> dict[StageId, TimeOrder]:
        """Return what the tasks of each stage are told."""
        return {time.stage.id: time.order(goals[time.stage.id].watermark) for time in self.stages}

    def reach(self, goals: Mapping[StageId, Clock]) -> None:
        """Go on to where a micro-batch has come, or where there was nothing to do on the way."""
        for time in self.stages:
            time.clock = goals[time.stage.id]

    def news(self) -> dict[ChannelId, Clock]:
        """Return what those behind have not been told yet."""
        news = self._untold()
        self._told |= news
        return news

    def _untold(self) -> dict[ChannelId, Clock]:
        by_stage = {time.stage.id: time for time in self.stages}
        found = {}
        for channel in self.outputs:
            time = by_stage[channel.producer]
            # Who goes on from a snapshot has heard something else before.
            unheard = None if time.is_restored else Clock()
            clock = _behind(time, channel)
            # The end of input tells the last watermark.
            if clock.watermark < MAX_WATERMARK and clock != self._told.get(channel.id, unheard):
                found[channel.id] = clock
        return found

    def has_news(self) -> bool:
        """Whether time has moved here, with no input: something became idle, or caught up."""
        if self._untold():
            return True
        goals = self.plan({}, end=False)
        return any(goals[time.stage.id] != time.clock for time in self.stages)

    def calls(self, now: float) -> bool:
        """Whether there is something to do that needs no input."""
        return self.is_due({t.stage.id: t.clock for t in self.stages}, now) or self.has_news()

    def wait_seconds(self, now: float) -> float | None:
        """Return in how many seconds a timer is due or a stream has its say, None for never."""
        waits = [
            at / 1000 - now for time in self.stages if (at := time.next_processing()) is not None
        ]
        waits += [w - now for t in self.stages if (w := t.wakes_at(self.interval)) is not None]
        return max(0.0, min(waits)) if waits else None


def _maker(node: Node, saved: OperatorTime, now: float) -> MakerTime:
    assert node.watermarks is not None
    own = node.watermarks.generator is not None
    generators = UnitGenerators(node, saved.generators) if own else None
    return MakerTime(node.watermarks, saved, now, generators)


def _same(ends: ChannelEnds) -> tuple[str, int, int]:
    """Return what makes an input of a step the same one in another attempt."""
    return ends.producer.uid, ends.channel.input, ends.ordinal


def _behind(time: StageTime, channel: Channel) -> Clock:
    node = next(n for n in time.stage.nodes if n.id == channel.source_node)
    return time.behind(node)


def _resumed(saved: OperatorTime | None, stage: Stage) -> OperatorTime:
    """Return what a step goes on with; its subtasks are others if there are more or fewer."""
    if saved is None or stage.is_source:
        return saved or OperatorTime()
    names = [f"#{i}" for i in range(stage.parallelism)]
    if set(names) == set(saved.units):
        return saved
    least = min(saved.units.values(), default=MIN_WATERMARK)
    # Nobody can say whose of them a generator would be.
    return replace(saved, units=dict.fromkeys(names, least), idle=[], generators={})
