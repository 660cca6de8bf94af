"""Groups: which stages run together in one job of the engine.

Between groups records travel in channels, with barriers in them, and each group keeps its own
pace. Inside a group they travel by the engine's own shuffle, and all stages of it are at the
same micro-batch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from penstock.graph.plan import Channel, Plan, Stage
from penstock.ids import ChannelId, StageId


class Transport(Enum):
    """How records get from stage to stage."""

    CHANNEL = "channel"
    """In segment files: every stage is a group of its own."""
    SHUFFLE = "shuffle"
    """By the engine's shuffle, wherever stages can be at the same micro-batch."""


@dataclass(frozen=True, slots=True)
class Group:
    """Stages that run together, micro-batch by micro-batch."""

    stages: tuple[Stage, ...]
    """In topological order: the first one reads what comes from outside."""
    levels: tuple[tuple[StageId, ...], ...]
    """The same by their longest way from the first one: a level needs all before it."""
    inner: frozenset[ChannelId]
    """The channels between them, which have no log."""

    @property
    def head(self) -> Stage:
        """The stage that reads a source, or the channels from other groups."""
        return self.stages[0]

    @property
    def outputs(self) -> tuple[Channel, ...]:
        """The channels to other groups."""
        return tuple(c for s in self.stages for c in s.outputs if c.id not in self.inner)


def group_stages(
    plan: Plan, transport: Transport, logged: Collection[ChannelId] = ()
) -> tuple[Group, ...]:
    """Put stages together that the engine can run in one job.

    Channels in `logged` must have a log, because something waits in them already.

    A stage goes with its producers if all of them are in one group. Fed by two groups it begins
    one of its own, so a group reads one source or channels, and so does a stage that was
    decoupled, which is to keep its own pace, or whose rows the engine reads out of channels.
    """
    group_of: dict[StageId, int] = {}
    members: list[list[Stage]] = []
    for stage in plan.stages:
        feeding = {group_of[c.producer] for c in stage.inputs}
        is_cut = stage.head.kind.begins_stage or any(c.id in logged for c in stage.inputs)
        if transport is Transport.SHUFFLE and len(feeding) == 1 and not is_cut:
            group_of[stage.id] = feeding.pop()
        else:
            group_of[stage.id] = len(members)
            members.append([])
        members[group_of[stage.id]].append(stage)
    return tuple(_group(stages) for stages in members)


def _group(stages: list[Stage]) -> Group:
    level_of: dict[StageId, int] = {}
    for stage in stages:
        before = [level_of[c.producer] for c in stage.inputs if c.producer in level_of]
        level_of[stage.id] = max(before, default=-1) + 1
    return Group(
        stages=tuple(stages),
        levels=tuple(
            tuple(s.id for s in stages if level_of[s.id] == level)
            for level in range(max(level_of.values()) + 1)
        ),
        inner=frozenset(c.id for s in stages for c in s.inputs if c.producer in level_of),
    )
