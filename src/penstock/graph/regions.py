"""Pipelined regions: the stages that run together in one Spark job, and their subtasks' slots.

Unlike in Flink, a region is not a unit of failover: if one fails, the whole attempt ends. Between
regions records go through channels, with barriers among them, and each region runs its own
micro-batches. Inside a region Spark's shuffle carries the records, and all stages process the same
micro-batch.

A region runs level by level. The partitions of a level are the subtasks of its stages, one stage
after the other. This assignment is the same for every micro-batch, so that a subtask finds its
local state again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.graph.plan import Channel, Plan, Stage
from penstock.ids import ChannelId, StageId


class Transport(Enum):
    """How records are exchanged between stages."""

    CHANNEL = "channel"
    """In segment files: every stage is a region of its own."""
    SHUFFLE = "shuffle"
    """By Spark's shuffle, wherever stages can process the same micro-batch."""


@dataclass(frozen=True, slots=True)
class PipelinedRegion:
    """Stages that run together, micro-batch by micro-batch."""

    stages: tuple[Stage, ...]
    """In topological order: the first one reads a source or channels."""
    levels: tuple[tuple[StageId, ...], ...]
    """The stages by their longest distance from the first one: a level needs all before it."""
    internal_channels: frozenset[ChannelId]
    """The channels between the stages, which have no log."""

    @property
    def head(self) -> Stage:
        """The stage that reads a source, or the channels from other regions."""
        return self.stages[0]

    @property
    def outputs(self) -> tuple[Channel, ...]:
        """The channels to other regions."""
        internal = self.internal_channels
        return tuple(c for s in self.stages for c in s.outputs if c.id not in internal)


def pipelined_regions(
    plan: Plan, transport: Transport, logged: Collection[ChannelId] = ()
) -> tuple[PipelinedRegion, ...]:
    """Group the stages of a plan into regions.

    Channels in `logged` must have a log, because a restored job has records in them.

    A stage joins the region of its producers if all of them are in the same one. Fed by two
    regions it starts its own, so a region reads one source or channels. So does a stage that was
    decoupled, or whose rows Spark reads out of channels.
    """
    region_of: dict[StageId, int] = {}
    regions: list[list[Stage]] = []
    for stage in plan.stages:
        feeding = {region_of[c.producer] for c in stage.inputs}
        starts = stage.head.kind.begins_stage or any(c.id in logged for c in stage.inputs)
        if transport is Transport.SHUFFLE and len(feeding) == 1 and not starts:
            region_of[stage.id] = feeding.pop()
        else:
            region_of[stage.id] = len(regions)
            regions.append([])
        regions[region_of[stage.id]].append(stage)
    return tuple(map(_region, regions))


def upstream_regions(regions: Sequence[PipelinedRegion]) -> dict[StageId, list[StageId]]:
    """Return, for each region, the regions that it reads from; regions go by their first stage."""
    heads = {stage.id: region.head.id for region in regions for stage in region.stages}
    return {
        region.head.id: sorted({heads[c.producer] for c in region.head.inputs})
        for region in regions
    }


def _region(stages: list[Stage]) -> PipelinedRegion:
    level_of: dict[StageId, int] = {}
    for stage in stages:
        before = [level_of[c.producer] for c in stage.inputs if c.producer in level_of]
        level_of[stage.id] = max(before, default=-1) + 1
    return PipelinedRegion(
        stages=tuple(stages),
        levels=tuple(
            tuple(s.id for s in stages if level_of[s.id] == level)
            for level in range(max(level_of.values()) + 1)
        ),
        internal_channels=frozenset(
            c.id for s in stages for c in s.inputs if c.producer in level_of
        ),
    )


@dataclass(frozen=True, slots=True)
class SubtaskSlot:
    """The address of a subtask in its region's Spark job; unrelated to Flink's task slots."""

    level: int
    partition: int


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """The slots of all subtasks of a region; small, and sent to its tasks."""

    order: tuple[StageId, ...]
    """The stages in the region's order."""
    levels: tuple[tuple[tuple[StageId, int], ...], ...]
    """By level, its stages and their parallelism."""

    def width(self, level: int) -> int:
        """Return how many partitions a level has."""
        return sum(parallelism for _, parallelism in self.levels[level])

    def slot_of(self, stage: StageId, subtask: int) -> SubtaskSlot:
        """Return the slot of a subtask."""
        for level, stages in enumerate(self.levels):
            first = 0
            for other, parallelism in stages:
                if other == stage:
                    return SubtaskSlot(level, first + subtask)
                first += parallelism
        raise KeyError(stage)

    def subtask_at(self, slot: SubtaskSlot) -> tuple[StageId, int]:
        """Return the stage and subtask of a slot."""
        left = slot.partition
        for stage, parallelism in self.levels[slot.level]:
            if left < parallelism:
                return stage, left
            left -= parallelism
        raise IndexError(slot)


def slot_assignment(region: PipelinedRegion) -> SlotAssignment:
    """Assign a slot to every subtask of a region."""
    parallelism = {s.id: s.parallelism for s in region.stages}
    return SlotAssignment(
        order=tuple(s.id for s in region.stages),
        levels=tuple(tuple((s, parallelism[s]) for s in level) for level in region.levels),
    )
